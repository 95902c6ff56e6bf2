#pragma once

#include <optional>

#include "exact.h"
#include "family.h"
#include "fastest.h"

namespace smp {

// One search of a job by one strategy, exact prices included.
class JobSearch {
 public:
  // `job` and `options` must outlive it. Throws ConfigError when a pinned key cannot be honoured.
  JobSearch(const JobSpec& job, const SearchOptions& options);

  // Everything that is said of the job.
  SearchResult run();
  // The best plan alone, without reasons; nothing when none fits.
  std::optional<Plan> best_plan();
  // After best_plan() gave none: why.
  std::string problem();

 private:
  bool practice() const { return options_.strategy == Strategy::kBestPractice; }
  bool find();
  bool find_with(Fit accepted);
  bool take_practical();
  bool take_fastest();
  void note_closest();
  SearchResult told();
  std::vector<FamilyVerdict> verdicts(const Candidate* chosen);

  const JobSpec& job_;
  const SearchOptions& options_;
  SettledJob settled_;
  Pricer pricer_;
  size_t exact_layouts_;
  FastestResult fastest_;
  std::vector<FamilyResult> families_;
  // What was found: the chosen layout and the others that were priced exactly, fastest first.
  std::optional<ExactLayout> chosen_;
  std::vector<ExactLayout> others_;
  // Where nothing was.
  std::optional<Candidate> closest_;
  std::string problem_;
};

}  // namespace smp
