#pragma once

#include "pipeline_time.h"
#include "smp/planner/time_model.h"

namespace smp {

// predict_time() for many layouts whose pipelines have one shape: the passes are listed once.
// Immutable.
class StepSimulation {
 public:
  explicit StepSimulation(const Plan& plan);
  TimePrediction predict(const Plan& plan) const;

 private:
  PipelinePasses passes_;
};

}  // namespace smp
