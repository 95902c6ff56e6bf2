#include "job_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "explain.h"
#include "infeasible.h"
#include "reasons.h"
#include "smp/plan/engine_rules.h"
#include "smp/plan/errors.h"
#include "smp/planner/legality.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

// Layouts of the fastest splits that are priced exactly beside the winner.
constexpr int64_t kExactLayouts = 4;

// Layouts that are priced exactly in one search, whether they fit or not.
constexpr size_t kMostExact = 12;

constexpr const char* kNoDegree =
    "no tensor and pipeline degree is legal with the keys that are pinned";

// What is pinned must be what the engine runs, where the engine is what will run it.
void require_engine(const JobSpec& job) {
  if (job.cluster.device != DeviceKind::kCpu) return;
  if (job.parallel.profile.value_or(Profile::kSmp) != Profile::kSmp) return;
  Plan pinned;
  pinned.job = job;
  const std::vector<std::string> broken = what_engine_lacks(pinned);
  if (!broken.empty()) {
    throw ConfigError(
        fmt::format("device cpu is run by the engine of this version, which lacks\n  {}",
                    fmt::join(broken, "\n  ")));
  }
}

void require_batch_limit(const TrainingSpec& training) {
  if (!training.global_batch) return;
  const int64_t tokens = *training.global_batch * training.sequence_length;
  if (tokens <= training.max_tokens_per_batch) return;
  throw ConfigError(fmt::format(
      "training.global_batch: {} x {} tokens = {} > max_tokens_per_batch {}: {} samples are the "
      "most",
      with_commas(*training.global_batch), with_commas(training.sequence_length),
      with_commas(tokens), with_commas(training.max_tokens_per_batch),
      with_commas(training.max_tokens_per_batch / training.sequence_length)));
}

SettledJob checked(const JobSpec& job, Strategy strategy) {
  require_legal_pins(job);
  require_batch_limit(job.training);
  SettledJob settled = settle(job, strategy);
  require_engine(settled.job);
  return settled;
}

void keep_closest(std::optional<Candidate>& kept, const Candidate& candidate) {
  if (!kept || candidate.peak_bytes < kept->peak_bytes) kept = candidate;
}

// Adds the seconds of its life.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum), begin_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  std::chrono::steady_clock::time_point begin_;
};

bool faster(const Candidate& a, const Candidate& b) {
  return a.seconds_per_token < b.seconds_per_token;
}

}  // namespace

JobSearch::JobSearch(const JobSpec& job, const SearchOptions& options)
    : job_(job),
      options_(options),
      settled_(checked(job, options.strategy)),
      pricer_(settled_.job),
      exact_layouts_(static_cast<size_t>(std::max(options.top, kExactLayouts))) {}

std::optional<Plan> JobSearch::best_plan() {
  exact_layouts_ = 1;
  if (!find()) return std::nullopt;
  return std::move(chosen_->plan);
}

std::string JobSearch::problem() {
  if (!closest_) return problem_;
  return fmt::format("{} needs {}", describe(closest_->choice),
                     memory_problem(pricer_.job(), pricer_.detail(closest_->choice)));
}

SearchResult JobSearch::run() {
  if (find()) return told();
  SearchResult result;
  result.strategy = options_.strategy;
  result.best = explain_infeasible(job_, options_.strategy, pricer_, closest_, problem_);
  result.families = verdicts(nullptr);
  result.effort = pricer_.effort();
  return result;
}

bool JobSearch::find() { return find_with(Fit::kFits) || find_with(Fit::kTight); }

bool JobSearch::find_with(Fit accepted) {
  pricer_.accept(accepted);
  if (!practice()) {
    const SearchSpace space(settled_);
    // What does not fit after all made the search leave out slower layouts: it is done again, with
    // higher peaks.
    for (;;) {
      {
        const Stopwatch watch(pricer_.effort().seconds);
        fastest_ = search_fastest(pricer_, space, options_.pareto);
      }
      if (take_fastest()) return true;
      if (!pricer_.raise_peaks()) break;
    }
    note_closest();
    return false;
  }
  // A layout that does not fit after all changes the order in which the others come.
  for (;;) {
    {
      const Stopwatch watch(pricer_.effort().seconds);
      families_ = search_families(settled_, pricer_);
    }
    if (choose_by_practice(families_) == nullptr) {
      note_closest();
      return false;
    }
    if (take_practical()) return true;
    if (!pricer_.raise_peaks()) {
      note_closest();
      return false;
    }
  }
}

bool JobSearch::take_practical() {
  const FamilyResult* family = choose_by_practice(families_);
  chosen_ = price_exactly(settled_, pricer_, family->best->choice);
  if (!chosen_) return false;
  std::vector<const Candidate*> others;
  for (const FamilyResult& other : families_) {
    if (other.best && &other != family) others.push_back(&*other.best);
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const Candidate* a, const Candidate* b) { return faster(*a, *b); });
  for (const Candidate* other : others) {
    if (static_cast<int64_t>(others_.size()) + 1 >= options_.top) break;
    if (auto exact = price_exactly(settled_, pricer_, other->choice)) {
      others_.push_back(std::move(*exact));
    }
  }
  return true;
}

// The best of all by the rule of simplicity and the best of each split are priced exactly; of those
// the same rule takes one. Where a layout does not fit after all, the next of its split is taken.
bool JobSearch::take_fastest() {
  Staircase all;
  std::vector<std::vector<Candidate>> lines;
  for (const SplitResult& split : fastest_.splits) {
    if (split.fits.empty()) continue;
    lines.push_back(split.fits.in_order());
    for (const Candidate& candidate : lines.back()) all.offer(candidate);
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return faster(a.front(), b.front()); });
  lines.insert(lines.begin(), all.in_order());

  std::vector<ExactLayout> priced;
  size_t tried = 0;
  for (const std::vector<Candidate>& line : lines) {
    if (priced.size() >= exact_layouts_) break;
    for (const Candidate& candidate : line) {
      if (++tried > kMostExact) break;
      const bool known = std::any_of(priced.begin(), priced.end(), [&](const ExactLayout& layout) {
        return layout.candidate.choice == candidate.choice;
      });
      if (known) break;
      if (auto exact = price_exactly(settled_, pricer_, candidate.choice)) {
        priced.push_back(std::move(*exact));
        break;
      }
    }
  }
  if (priced.empty()) return false;
  Staircase exact;
  for (const ExactLayout& layout : priced) exact.offer(layout.candidate);
  const LayoutChoice choice = exact.choose()->choice;
  std::stable_sort(priced.begin(), priced.end(), [](const ExactLayout& a, const ExactLayout& b) {
    return faster(a.candidate, b.candidate);
  });
  for (ExactLayout& layout : priced) {
    if (layout.candidate.choice == choice) {
      chosen_ = std::move(layout);
    } else {
      others_.push_back(std::move(layout));
    }
  }
  return true;
}

SearchResult JobSearch::told() {
  SearchResult result;
  result.strategy = options_.strategy;
  const Candidate& chosen = chosen_->candidate;
  const auto reasons = [&](const Candidate& candidate) {
    if (practice()) {
      const auto own = std::find_if(families_.begin(), families_.end(), [&](const auto& family) {
        return family.best && family.best->choice == candidate.choice;
      });
      return reasons_of(settled_, pricer_, *own, families_);
    }
    const bool beaten = !others_.empty() && faster(others_.front().candidate, candidate);
    return reasons_of(settled_, pricer_, candidate, beaten ? &others_.front().candidate : nullptr,
                      fastest_);
  };
  result.families = verdicts(&chosen);
  result.fit = chosen.fit;
  const PricedLayout closed = pricer_.detail(chosen.choice);
  result.best_priced = at_exact_prices(closed, chosen);
  result.binding = binding_of(pricer_.job().cluster, *result.best_priced);
  for (const RankPrediction& rank : chosen_->plan.predictions.ranks) {
    if (rank.peak_bytes < std::llround(chosen.peak_bytes)) continue;
    for (const MemoryTerm& term : rank.terms) {
      if (term.name != name_of(result.binding->memory_term)) continue;
      result.binding->memory_term_bytes = static_cast<double>(term.bytes);
    }
  }
  for (const Candidate& point : fastest_.pareto) {
    result.pareto.push_back(pricer_.detail(point.choice));
  }
  result.difference =
      difference_of(job_, practice() ? Strategy::kFastest : Strategy::kBestPractice, closed);
  if (options_.explain) result.purchases = purchases_of(job_, pricer_, closed);

  const auto tell = [&](ExactLayout& layout) {
    layout.plan.reasons = reasons(layout.candidate);
    if (!layout.partition_reason.empty()) layout.plan.reasons.push_back(layout.partition_reason);
  };
  tell(*chosen_);
  for (ExactLayout& other : others_) {
    if (static_cast<int64_t>(result.others.size()) + 1 >= options_.top) break;
    tell(other);
    result.others.push_back(std::move(other.plan));
  }
  result.best = std::move(chosen_->plan);
  result.effort = pricer_.effort();
  return result;
}

std::vector<FamilyVerdict> JobSearch::verdicts(const Candidate* chosen) {
  if (!practice()) return verdicts_of(pricer_, fastest_, chosen);
  return verdicts_of(pricer_, families_,
                     chosen == nullptr ? nullptr : choose_by_practice(families_));
}

void JobSearch::note_closest() {
  closest_.reset();
  problem_ = "no sharding is open with the keys that are pinned";
  std::string batch;
  bool any = false;
  for (const FamilyResult& family : families_) {
    for (const Candidate& candidate : family.closest) keep_closest(closest_, candidate);
    if (batch.empty()) batch = family.batch_problem;
    any = true;
  }
  for (const SplitResult& split : fastest_.splits) {
    if (split.closest) keep_closest(closest_, *split.closest);
    if (batch.empty()) batch = split.batch_problem;
    any = true;
  }
  if (!any) problem_ = kNoDegree;
  if (!batch.empty()) problem_ = "no batch is legal: " + batch;
}

}  // namespace smp
