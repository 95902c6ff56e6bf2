#pragma once

#include <optional>

#include "smp/planner/memory_estimate.h"
#include "stage_terms.h"

namespace smp {

// What a stage needs whatever is recomputed and offloaded.
struct EstimatedStage {
  EstimatedStage() = default;
  EstimatedStage(const JobSpec& job, const LayoutChoice& choice, const LayerBytes& layers,
                 int64_t stage);

  int64_t index = 0;
  StageHolds holds;
  double message_bytes = 0;  // on the host
};

// estimate_memory() of the fullest stage, for a search that asks for neighbours one after the
// other: layouts that differ in what they recompute and offload share the rules of their states and
// what their stages hold. One thread.
class MemoryEstimator {
 public:
  explicit MemoryEstimator(const JobSpec& job) : job_(job) {}

  // `layers` are those of the choice.
  MemoryEstimate fullest(const LayoutChoice& choice, const LayerBytes& layers);

 private:
  static LayoutChoice key_of(LayoutChoice choice);
  void look_at(const LayoutChoice& choice, const LayerBytes& layers);

  const JobSpec& job_;
  // Of the choice that was asked for last.
  LayoutChoice key_;
  std::optional<StateRules> rules_;
  EstimatedStage first_, second_, last_;
};

}  // namespace smp
