#include "search/exact_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "search/collectives_choice.h"
#include "search/fastest.h"
#include "search/simplicity.h"
#include "search/stage_balance.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::search {
namespace {

// Layouts of one form are off their closed forms alike, within this.
constexpr double kAlike = 0.93;

// Collectives of another kind save no more than this share of a step.
constexpr double kMostByCollectives = 0.85;

// Of one that needs too much memory, so many that recompute more are tried.
constexpr size_t kMostLeaner = 4;

// What a search may cost, whatever the job.
constexpr size_t kMostSimulated = 256;
constexpr size_t kMostRefused = 48;

}  // namespace

ExactSearch::ExactSearch(const choice::JobWithDefaults& defaulted, const SearchSpace& space,
                         Pricer& pricer, const std::vector<Candidate>& candidates)
    : defaulted_(defaulted),
      space_(space),
      pricer_(pricer),
      candidates_(candidates),
      best_(std::numeric_limits<double>::infinity()) {}

ExactSearch::Form ExactSearch::form_of(const choice::LayoutChoice& choice) {
  return {choice.pipeline,       choice.schedule,
          choice.virtual_stages, choice.has_even_stages(),
          choice.tensor,         choice.microbatches,
          choice.placement,      choice.pipeline > 1 ? Sharding::kNone : choice.sharding};
}

double ExactSearch::expected(const Candidate& candidate) const {
  const auto ratio = ratios_.find(form_of(candidate.choice));
  return candidate.seconds_per_token * (ratio == ratios_.end() ? 1 : ratio->second);
}

bool ExactSearch::may_win(const Candidate& candidate) {
  double least = candidate.least_seconds_per_token;
  if (is_simulated(defaulted_.job, candidate.choice)) {
    const auto ratio = ratios_.find(form_of(candidate.choice));
    least =
        std::max(least, candidate.seconds_per_token *
                            (ratio == ratios_.end() ? 1 / kOverestimate : kAlike * ratio->second));
  }
  const double limit = (1 - kLeftOut) * best_;
  if (least < limit) return true;
  return least * kMostByCollectives < limit && least * collectives_ratio(candidate.choice) < limit;
}

ExactSearch::Traffic ExactSearch::traffic_of(const choice::LayoutChoice& choice) {
  return {choice.tensor,
          choice.pipeline,
          choice.context,
          choice.exchange,
          choice.shard,
          choice.replica,
          choice.sharding,
          choice.sequence_parallel,
          choice.offload_activations || choice.offload_optimizer || choice.offload_parameters,
          choice.micro_batch,
          choice.microbatches,
          choice.recompute};
}

double ExactSearch::collectives_ratio(const choice::LayoutChoice& choice) {
  const auto [found, unknown] = collectives_ratios_.try_emplace(traffic_of(choice), 1.0);
  if (!unknown || defaulted_.job.cluster.device != DeviceKind::kCuda) return found->second;
  const CollectivesChoice chosen = choose_collectives(pricer_, choice);
  const double closed_s = pricer_.price_time(choice).step_s;
  if (closed_s > 0) {
    Pricer& by_chosen = pricer_.with_collectives(chosen.groups, chosen.others);
    const double chosen_s = by_chosen.detail(choice).time.step_s;
    found->second = std::min(1.0, chosen_s / closed_s);
  }
  return found->second;
}

const Candidate* ExactSearch::leaner(const choice::LayoutChoice& choice) {
  const std::vector<Recompute>& open = space_.recomputes();
  const bool partly = choice.recompute == Recompute::kNone || choice.recompute_layers > 0;
  if (!partly || !space_.recompute_layers_open() || leaner_.size() >= kMostRefused ||
      std::find(open.begin(), open.end(), Recompute::kFull) == open.end()) {
    return nullptr;
  }
  choice::LayoutChoice more = choice;
  more.recompute = Recompute::kFull;
  more.recompute_layers = std::max(0, more.recompute_layers);  // -1, all, where none recomputes
  const int64_t blocks = model::block_count(defaulted_.job.model) / choice.pipeline;
  for (size_t i = 0; i < kMostLeaner && ++more.recompute_layers < blocks; ++i) {
    if (space_.forbidden().matches(more)) continue;
    const Candidate candidate = pricer_.price(more);
    if (!pricer_.accepts(candidate.fit)) continue;
    return &leaner_.emplace_back(candidate);
  }
  return nullptr;
}

// As full as one of its kind that was.
bool ExactSearch::is_refused(const Candidate& candidate) const {
  const choice::LayoutChoice& own = candidate.choice;
  return std::any_of(refused_.begin(), refused_.end(), [&](const Candidate& refused) {
    choice::LayoutChoice like = refused.choice;
    like.microbatches = own.microbatches;
    like.shard = own.shard;
    like.replica = own.replica;
    like.sharding = own.sharding;
    return like == own && candidate.peak_bytes >= refused.peak_bytes;
  });
}

double ExactSearch::simulate(const Candidate& candidate) {
  const double by_collectives = collectives_ratio(candidate.choice);
  if (!is_simulated(defaulted_.job, candidate.choice)) {
    return candidate.seconds_per_token * by_collectives;
  }
  ++pricer_.statistics().simulated;
  ++simulated_;
  const double step_s = simulated_step_s(defaulted_, pricer_, candidate.choice);
  const double ratio = candidate.step_s > 0 ? step_s / candidate.step_s : 1;
  ratios_[form_of(candidate.choice)] = ratio;
  return candidate.seconds_per_token * ratio * by_collectives;
}

const ExactLayout* ExactSearch::price(const Candidate& candidate) {
  const auto known = std::find_if(priced_.begin(), priced_.end(), [&](const ExactLayout& layout) {
    return layout.candidate.choice == candidate.choice;
  });
  if (known != priced_.end()) return &*known;
  std::optional<ExactLayout> exact = price_exactly(defaulted_, pricer_, candidate.choice);
  if (!exact) {
    refused_.push_back(candidate);
    return nullptr;
  }
  best_ = std::min(best_, exact->candidate.seconds_per_token);
  priced_.push_back(std::move(*exact));
  return &priced_.back();
}

bool ExactSearch::run() {
  std::vector<const Candidate*> left;
  for (const Candidate& candidate : candidates_) left.push_back(&candidate);
  while (!left.empty() && simulated_ < kMostSimulated && refused_.size() < kMostRefused) {
    const auto next = std::min_element(
        left.begin(), left.end(),
        [this](const Candidate* a, const Candidate* b) { return expected(*a) < expected(*b); });
    const Candidate& candidate = **next;
    left.erase(next);
    if (!may_win(candidate) || is_refused(candidate)) continue;
    if (simulate(candidate) >= (1 - kLeftOut) * best_) continue;
    if (price(candidate) == nullptr) {
      if (const Candidate* less = leaner(candidate.choice)) left.push_back(less);
      continue;
    }
    std::erase_if(left, [this](const Candidate* other) { return !may_win(*other); });
  }
  return !priced_.empty();
}

size_t ExactSearch::fastest() const {
  const auto least = std::min_element(
      priced_.begin(), priced_.end(), [](const ExactLayout& a, const ExactLayout& b) {
        return a.candidate.seconds_per_token < b.candidate.seconds_per_token;
      });
  return static_cast<size_t>(least - priced_.begin());
}

ExactLayout ExactSearch::take_winner() {
  SMP_CHECK(!priced_.empty());
  const double limit = kNoise * best_;
  const int most = complexity(priced_[fastest()].candidate.choice);
  std::map<int, const Candidate*> levels;  // the best of each that is simpler
  for (const Candidate& candidate : candidates_) {
    const int level = complexity(candidate.choice);
    if (level >= most || expected(candidate) > limit) continue;
    const Candidate*& kept = levels[level];
    if (kept == nullptr || is_better(candidate, *kept)) kept = &candidate;
  }
  choice::LayoutChoice winner = priced_[fastest()].candidate.choice;
  for (const auto& [level, candidate] : levels) {
    if (simulated_ >= kMostSimulated || refused_.size() >= kMostRefused) break;
    if (best_ > 0 && simulate(*candidate) > limit) continue;
    const ExactLayout* exact = price(*candidate);
    if (exact == nullptr || exact->candidate.seconds_per_token > limit) continue;
    winner = candidate->choice;
    break;
  }
  std::stable_sort(priced_.begin(), priced_.end(), [](const ExactLayout& a, const ExactLayout& b) {
    return a.candidate.seconds_per_token < b.candidate.seconds_per_token;
  });
  const auto own = std::find_if(priced_.begin(), priced_.end(), [&](const ExactLayout& layout) {
    return layout.candidate.choice == winner;
  });
  ExactLayout taken = std::move(*own);
  priced_.erase(own);
  return taken;
}

}  // namespace smp::search
