#include <algorithm>
#include <cmath>

#include "search/explain.h"
#include "search/infeasible.h"
#include "search/job_search.h"
#include "search/reasons.h"
#include "smp/planner/choice/choice_words.h"

// Everything that is said of a job once its search has ended. Some of it searches changed jobs.
namespace smp::search {
namespace {

bool faster(const Candidate& a, const Candidate& b) {
  return a.seconds_per_token < b.seconds_per_token;
}

}  // namespace

SearchResult JobSearch::run() {
  if (find()) return result_of_chosen();
  SearchResult result;
  result.strategy = options_.strategy;
  result.best = explain_infeasible(job_, options_.strategy, pricer_, closest_, problem_);
  result.families = verdicts(nullptr);
  result.statistics = pricer_.statistics();
  return result;
}

// The best of every family but the chosen one's, by the closed form and fastest first.
std::vector<Candidate> JobSearch::bests_of_others() const {
  std::vector<Candidate> bests;
  const choice::LayoutChoice& chosen = chosen_->candidate.choice;
  for (const FamilyResult& family : families_) {
    if (family.best && family.best->choice != chosen) bests.push_back(*family.best);
  }
  for (const SplitResult& split : fastest_.splits) {
    if (split.fits.empty() || is_of(split.split, chosen)) continue;
    bests.push_back(*split.fits.fastest());
  }
  std::stable_sort(bests.begin(), bests.end(), faster);
  return bests;
}

// Priced as the chosen one is.
void JobSearch::price_others() {
  const auto wanted = static_cast<size_t>(options_.top - 1);
  if (wanted == 0 && !rivals_.empty()) return;
  std::vector<Candidate> bests = bests_of_others();
  if (bests.empty()) {
    for (const Candidate& candidate : fastest_.candidates) {
      if (candidate.choice != chosen_->candidate.choice) bests.push_back(candidate);
    }
  }
  for (const Candidate& best : bests) {
    if (others_.size() >= std::max<size_t>(wanted, 1)) break;
    if (auto exact = price_exactly(defaulted_, pricer_, best.choice)) {
      others_.push_back(std::move(*exact));
    }
  }
  std::stable_sort(others_.begin(), others_.end(), [](const ExactLayout& a, const ExactLayout& b) {
    return faster(a.candidate, b.candidate);
  });
}

std::optional<RunnerUp> JobSearch::runner_up() const {
  const Candidate* next = nullptr;
  for (const auto* layouts : {&rivals_, &others_}) {
    for (const ExactLayout& layout : *layouts) {
      if (next == nullptr || faster(layout.candidate, *next)) next = &layout.candidate;
    }
  }
  if (next == nullptr) return std::nullopt;
  return RunnerUp{choice::describe(next->choice), next->seconds_per_token, next->peak_bytes};
}

SearchResult JobSearch::result_of_chosen() {
  SearchResult result;
  result.strategy = options_.strategy;
  const Candidate& chosen = chosen_->candidate;
  const auto reasons = [&](const Candidate& candidate) {
    if (practice()) {
      const auto own = std::find_if(families_.begin(), families_.end(), [&](const auto& family) {
        return family.best && family.best->choice == candidate.choice;
      });
      return reasons_of(defaulted_, pricer_, *own, families_);
    }
    const bool beaten = !rivals_.empty() && faster(rivals_.front().candidate, candidate);
    return reasons_of(defaulted_, pricer_, candidate, beaten ? &rivals_.front().candidate : nullptr,
                      fastest_);
  };
  price_others();
  result.runner_up = runner_up();
  result.families = verdicts(&chosen);
  result.fit = chosen.fit;
  const PricedLayout closed = pricer_.detail(chosen.choice);
  result.best_priced = at_exact_prices(closed, chosen);
  result.bottleneck = bottleneck_of(pricer_.job().cluster, *result.best_priced);
  for (const RankPrediction& rank : chosen_->plan.predictions.ranks) {
    if (rank.peak_bytes < std::llround(chosen.peak_bytes)) continue;
    for (const MemoryTerm& term : rank.terms) {
      if (term.name != name_of(result.bottleneck->memory_term)) continue;
      result.bottleneck->memory_term_bytes = static_cast<double>(term.bytes);
    }
  }
  result.pareto = simulated_front(defaulted_, pricer_, fastest_.pareto);
  result.difference =
      difference_of(job_, practice() ? choice::Strategy::kFastest : choice::Strategy::kBestPractice,
                    *result.best_priced);
  if (options_.explain) result.sensitivities = sensitivities_of(job_, pricer_, *result.best_priced);

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
  result.statistics = pricer_.statistics();
  return result;
}

std::vector<FamilyVerdict> JobSearch::verdicts(const Candidate* chosen) {
  if (!practice()) return verdicts_of(defaulted_, pricer_, fastest_, chosen);
  return verdicts_of(pricer_, families_,
                     chosen == nullptr ? nullptr : choose_by_practice(families_));
}

}  // namespace smp::search
