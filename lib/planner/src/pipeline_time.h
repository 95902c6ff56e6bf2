#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/schedule.h"

namespace smp {

// Seconds of one microbatch on one stage.
struct StageCost {
  double forward_s = 0;
  double backward_s = 0;
  double send_activation_s = 0;  // to the next stage
  double send_gradient_s = 0;    // to the stage before
};

// One forward or backward of one microbatch on one stage.
struct PipelineEvent {
  int64_t stage = 0;
  int64_t microbatch = 0;
  bool backward = false;
  double begin_s = 0;
  double end_s = 0;
};

// When each stage has done its last backward, and how long it took from its first forward to there
// without working.
struct PipelineTime {
  double makespan_s = 0;
  std::vector<double> idle_s;         // per stage, until the makespan
  std::vector<PipelineEvent> events;  // in the order of each stage
};

// The schedule of a pipeline whose stages have one layer each: a stage's layers run back to back,
// so one with their sum stands for all.
Schedule condensed_schedule(int64_t stages, PipelineKind kind, int64_t microbatches,
                            int64_t active_microbatches);

// Plays the stages' actions against each other: an action starts when its stage is free and its
// data have arrived. Sends run beside the computing.
PipelineTime simulate_pipeline(const std::vector<StageCost>& stages, const Schedule& schedule);

}  // namespace smp
