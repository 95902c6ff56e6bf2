#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "choice/choice_cache.h"
#include "cost/layer_cost_table.h"
#include "memory/memory_estimator.h"
#include "search/played_steps.h"
#include "smp/planner/search/search_result.h"
#include "time/time_estimator.h"

namespace smp::search {

// A layout and the few numbers that decide over it: what a search keeps by the thousand.
struct Candidate {
  choice::LayoutChoice choice;
  double step_s = 0;
  double seconds_per_token = 0;
  double peak_bytes = 0;
  prediction::Fit fit = prediction::Fit::kNo;
  double least_seconds_per_token = 0;  // no simulation of it takes less
};

// Prices layouts of one job in closed form, and counts. `job` must outlive it. `programs`: of jobs
// that differ in collectives alone. One thread.
class Pricer {
 public:
  explicit Pricer(const JobSpec& job, std::shared_ptr<cost::ProgramTable> programs = nullptr);
  ~Pricer();
  Pricer(const Pricer&) = delete;
  Pricer& operator=(const Pricer&) = delete;

  // Memory and step time.
  Candidate price(const choice::LayoutChoice& choice);
  // Step time alone, a bound: the peak is infinite and does not fit. With its memory, which may be
  // asked for later, the bound becomes an evaluation.
  Candidate price_time(const choice::LayoutChoice& choice);
  Candidate with_memory(const Candidate& timed);
  // Memory alone: whether it fits, for bounds and bisections.
  Candidate price_memory(const choice::LayoutChoice& choice);
  // Whatever the sharding, recomputing and offloading of layouts with these degrees, batch and
  // schedule: they take at least this long. Computing, messages inside layers and the bubble.
  double least_step_s(const choice::LayoutChoice& choice);
  // Steps that were simulated (stage_balance.h), so that the reasons need no second simulation.
  choice::ChoiceCache<double>& simulated_steps() { return simulated_steps_; }
  // Of a plan of the choice.
  const time::TimePrediction& played_step(const choice::LayoutChoice& choice, const Plan& plan);
  // Everything of one layout, for reports. Not counted.
  PricedLayout detail(const choice::LayoutChoice& choice);
  // Of one call of each layer.
  const cost::LayerCosts& costs(const choice::LayoutChoice& choice) { return costs_.of(choice); }

  // Of the same job with these collectives: made once, so that layouts share what layers cost.
  Pricer& with_collectives(const GroupCollectives& groups, std::optional<CollectivesKind> others);

  // From now on this layout does not fit: pricing its very schedule has shown it, at `ratio` times
  // the peak of the closed form.
  void refuse(const choice::LayoutChoice& choice, double ratio);
  bool has_refused() const { return !refused_.empty(); }
  // Whether any layout that was priced would be taken as tight. Where none would, and none was
  // refused, a search that accepts tight ones finds what one that does not has found.
  bool has_seen_tight() const { return has_seen_tight_; }
  // Searches again as if every peak were higher: by the least that what was refused since the last
  // time was above its closed form, and by a hundredth at least. False when nothing was refused, or
  // when it was done often enough.
  bool raise_peaks();
  // A layout is taken when its fit is at least this.
  void accept(prediction::Fit fit) { accepted_ = fit; }
  prediction::Fit accepted() const { return accepted_; }
  bool accepts(prediction::Fit fit) const {
    return fit == prediction::Fit::kFits || fit == accepted_;
  }

  const JobSpec& job() const { return job_; }
  const SearchStatistics& statistics() const { return statistics_; }
  SearchStatistics& statistics() { return statistics_; }

 private:
  prediction::Fit fit(const choice::LayoutChoice& choice,
                      const memory::MemoryEstimate& memory) const;
  prediction::Fit noted(prediction::Fit fit) {
    has_seen_tight_ |= fit == prediction::Fit::kTight;
    return fit;
  }
  double per_token(const choice::LayoutChoice& choice, double step_s) const;

  struct WithCollectives;

  const JobSpec& job_;
  const bool in_engine_;
  cost::LayerCostTable costs_;
  memory::MemoryEstimator memory_;
  time::TimeEstimator time_;
  std::vector<std::unique_ptr<WithCollectives>> with_collectives_;
  choice::ChoiceCache<double> simulated_steps_{1 << 9};
  PlayedSteps played_steps_;
  std::vector<choice::LayoutChoice> refused_;
  double least_ratio_ = 0;  // of those refused since raise_peaks(); 0 = none
  double raised_ = 1;       // times the closed form's peaks
  int raises_ = 0;
  bool has_seen_tight_ = false;
  prediction::Fit accepted_ = prediction::Fit::kFits;
  SearchStatistics statistics_;
};

// Why a layout does not fit: "45.14 GiB a rank, 37.59 GiB allowed (checkpoints 8.09 GiB, ...)".
std::string memory_problem(const JobSpec& job, const PricedLayout& layout);

// What a host has to hold for offloading, all its ranks being as the fullest.
double host_bytes_needed(const JobSpec& job, const memory::MemoryEstimate& memory);

}  // namespace smp::search
