#pragma once

#include <array>
#include <optional>

#include "memory/stage_terms.h"
#include "smp/planner/memory/memory_estimate.h"

namespace smp::memory {

// What a stage needs whatever is recomputed and offloaded.
struct EstimatedStage {
  EstimatedStage() = default;
  EstimatedStage(const JobSpec& job, const choice::LayoutChoice& choice,
                 const cost::LayerBytes& layers, int64_t stage);

  int64_t index = 0;
  cost::StageHolds holds;
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
  static choice::LayoutChoice key_of(choice::LayoutChoice choice);
  void look_at(const choice::LayoutChoice& choice, const cost::LayerBytes& layers);

  // Of a stage the states, for each way to recompute and offload that was asked for.
  struct KnownTerms {
    std::array<StageTerms, 8> terms;
    unsigned known = 0;  // a bit for each
  };
  const StageTerms& terms_of(KnownTerms& known, const choice::LayoutChoice& choice,
                             const cost::LayerBytes& layers, const EstimatedStage& stage) const;

  const JobSpec& job_;
  // Of the choice that was asked for last.
  choice::LayoutChoice key_;
  std::optional<StateRules> rules_;
  EstimatedStage first_, second_, last_;
  KnownTerms first_terms_, second_terms_, last_terms_;
};

}  // namespace smp::memory
