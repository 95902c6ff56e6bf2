#pragma once

#include "smp/planner/time/time_model.h"
#include "time/pipeline_time.h"

namespace smp::time {

// predict_time() for many layouts whose pipelines have one shape: the passes are listed once.
// Immutable.
class StepSimulation {
 public:
  explicit StepSimulation(const Plan& plan);
  TimePrediction predict(const Plan& plan) const;

 private:
  PipelinePasses passes_;
};

}  // namespace smp::time
