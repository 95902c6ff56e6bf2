#pragma once

#include <array>
#include <optional>

#include "layer_parameters.h"
#include "smp/planner/time_estimate.h"

namespace smp {

// A step but for what follows its last backward.
struct PipelineEstimate {
  TimeEstimate time;  // step_s is left 0
  // Of the busiest stage.
  StageParameters held;
  double forward_s = 0, backward_s = 0;  // of one microbatch
};
PipelineEstimate estimate_pipeline(const JobSpec& job, const LayoutChoice& choice,
                                   const LayerBytes& bytes, const LayerSeconds& layers);

// estimate_time() without model_flops, for a search that asks for neighbours one after the other:
// layouts that differ in the sharding of their optimizer state, or in where it lies, share their
// pipeline. One thread.
class TimeEstimator {
 public:
  explicit TimeEstimator(const JobSpec& job) : job_(job) {}

  // `bytes` and `layers` are those of the choice.
  TimeEstimate step(const LayoutChoice& choice, const LayerBytes& bytes,
                    const LayerSeconds& layers);
  const PipelineEstimate& pipeline(const LayoutChoice& choice, const LayerBytes& bytes,
                                   const LayerSeconds& layers);

 private:
  struct Known {
    LayoutChoice key;
    std::optional<PipelineEstimate> estimate;
  };
  // The choice that stands for all with its pipeline.
  static LayoutChoice key_of(LayoutChoice choice);

  const JobSpec& job_;
  // The last one of each kind of recomputing, offloading of activations and sharding.
  std::array<Known, 12> known_;
};

}  // namespace smp
