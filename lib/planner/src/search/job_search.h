#pragma once

#include <optional>

#include "search/best_practice.h"
#include "search/exact.h"
#include "search/fastest.h"

namespace smp::search {

// One search of a job by one strategy, exact prices included.
class JobSearch {
 public:
  // `job` and `options` must outlive it. Throws ConfigError when a pinned key cannot be honoured.
  JobSearch(const JobSpec& job, const SearchOptions& options);

  // Everything that is said of the job.
  SearchResult run();
  // The best layout at its exact prices, or its plan without reasons; nothing when none fits.
  std::optional<Candidate> best_candidate();
  std::optional<Plan> best_plan();
  const SearchStatistics& statistics() const { return pricer_.statistics(); }
  // After best_plan() gave none: why.
  std::string problem();

 private:
  bool practice() const { return options_.strategy == choice::Strategy::kBestPractice; }
  bool find();
  bool find_with(prediction::Fit accepted);
  bool find_fastest();
  bool take_practical();
  std::vector<Candidate> bests_of_others() const;
  void price_others();
  std::optional<RunnerUp> runner_up() const;
  void note_closest();
  SearchResult result_of_chosen();
  std::vector<FamilyVerdict> verdicts(const Candidate* chosen);

  const JobSpec& job_;
  const SearchOptions& options_;
  choice::JobWithDefaults defaulted_;
  Pricer pricer_;
  FastestResult fastest_;
  std::vector<FamilyResult> families_;
  // What was found: the chosen layout, the others that were priced exactly to choose it, and the
  // best of other families; fastest first.
  std::optional<ExactLayout> chosen_;
  std::vector<ExactLayout> rivals_;
  std::vector<ExactLayout> others_;
  // Where nothing was.
  std::optional<Candidate> closest_;
  std::string problem_;
};

}  // namespace smp::search
