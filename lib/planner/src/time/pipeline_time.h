#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/schedule/schedule.h"
#include "time/step_player.h"

namespace smp::time {

// Seconds of one microbatch in one chunk of a stage. Where the schedule puts weight gradients off,
// weight_s is theirs and backward_s has those of the inputs (and all of the head's); elsewhere the
// backward takes both.
struct ChunkCost {
  double forward_s = 0;
  double backward_s = 0;
  double weight_s = 0;
  double send_activation_s = 0;  // to the chunk after
  double send_gradient_s = 0;    // to the chunk before
};
using PipelineCosts = std::vector<std::vector<ChunkCost>>;  // per stage and chunk

// One pass of one microbatch through one chunk.
struct PipelineEvent {
  int64_t stage = 0;
  int64_t chunk = 0;
  int64_t microbatch = 0;
  schedule::ActionKind kind = schedule::ActionKind::kForward;  // kForward, kBackward or kWeight
  double begin_s = 0;
  double end_s = 0;

  bool is_same_pass(const PipelineEvent& other) const {
    return stage == other.stage && chunk == other.chunk && microbatch == other.microbatch &&
           kind == other.kind;
  }
};
// The passes of a step that was played with its actions: by stage, in the order of each. The weight
// gradients of `head_layer` (-1 = none) belong to its backward.
std::vector<PipelineEvent> passes_of(const schedule::Schedule& schedule, const PlayedStep& step,
                                     int64_t head_layer);

// When the pipeline has done its last gradient, and how long each stage took until then without
// working.
struct PipelineTime {
  double makespan_s = 0;
  std::vector<double> idle_s;         // per stage
  std::vector<PipelineEvent> events;  // where asked for
};
PipelineTime pipeline_time(const PlayedStep& step);

// Plays the passes of `shape` and their messages. `costs` are of as many stages and chunks.
PipelineTime simulate_pipeline(const PipelineCosts& costs, const schedule::ScheduleShape& shape,
                               PlayedDetail detail = PlayedDetail::kSums);

// The schedule of a pipeline whose chunks have one layer each: a chunk's layers run back to back,
// so one stands for all. Layers are numbered along the model. Throws ConfigError where
// schedule_refused().
schedule::Schedule condensed_schedule(const schedule::ScheduleShape& shape);
// Of its actions.
StepActionSeconds condensed_seconds(const PipelineCosts& costs,
                                    const schedule::ScheduleShape& shape);

}  // namespace smp::time
