#pragma once

#include <array>
#include <optional>
#include <vector>

#include "cost/priced_stages.h"
#include "memory/stage_terms.h"
#include "smp/planner/memory/memory_estimate.h"

namespace smp::memory {

// What a stage needs whatever is recomputed and offloaded.
struct EstimatedStage {
  int64_t index = 0;
  cost::StageHolds holds;
  double live = 0;           // microbatches in flight
  double message_bytes = 0;  // on the host
};

// estimate_memory() of the fullest stage, for a search that asks for neighbours one after the
// other: layouts that differ in what they recompute and offload share the rules of their states and
// what their stages hold. One thread.
class MemoryEstimator {
 public:
  explicit MemoryEstimator(const JobSpec& job) : job_(job) {}

  // `layers` are those of the choice.
  MemoryEstimate fullest(const choice::LayoutChoice& choice, const cost::LayerBytes& layers);

 private:
  // A stage and its states, for each way to recompute and offload that was asked for.
  struct KnownStage {
    EstimatedStage stage;
    std::array<StageTerms, 8> terms;
    unsigned known = 0;  // a bit for each
  };

  static choice::LayoutChoice key_of(choice::LayoutChoice choice);
  void look_at(const choice::LayoutChoice& choice, const cost::LayerBytes& layers);
  const StageTerms& terms_of(KnownStage& known, const choice::LayoutChoice& choice,
                             const cost::LayerBytes& layers) const;

  const JobSpec& job_;
  cost::PricedStages priced_;
  // Of the choice that was asked for last.
  choice::LayoutChoice key_;
  std::optional<StateRules> rules_;
  std::vector<KnownStage> stages_;  // the first `count_` of them
  size_t count_ = 0;
};

}  // namespace smp::memory
