#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/schedule/pass_order.h"
#include "smp/plan/schedule/schedule.h"

namespace smp {
struct Plan;
}

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

// Of a plan's chunks (step_simulation.cpp).
PipelineCosts pipeline_costs(const Plan& plan);

struct StepMessages;
// What follows the last pass of each of a plan's stages (step_simulation.cpp).
std::vector<StepMessages> messages_after_passes(const Plan& plan);

// One pass of one microbatch through one chunk.
struct PipelineEvent {
  int64_t stage = 0;
  int64_t chunk = 0;
  int64_t microbatch = 0;
  schedule::ActionKind kind = schedule::ActionKind::kForward;  // kForward, kBackward or kWeight
  double begin_s = 0;
  double end_s = 0;
};

// When each stage has done its last gradient, and how long it took from its first forward to there
// without working.
struct PipelineTime {
  double makespan_s = 0;
  std::vector<double> idle_s;         // per stage, until the makespan
  std::vector<PipelineEvent> events;  // in the order of each stage; where asked for
};

// The passes of all stages, each stage's in its order: what the time of a pipeline depends on. The
// starts of receives and the waits for sends take none.
struct PipelinePasses {
  schedule::ScheduleShape shape;
  std::vector<std::vector<schedule::Pass>> of_stage;
};
PipelinePasses pipeline_passes(const schedule::ScheduleShape& shape);

enum class PipelineEvents : bool { kNone, kAll };

// Plays the stages' passes against each other: a pass starts when its stage is free and its data
// have arrived. Sends run beside the computing. `costs` are of as many stages and chunks.
PipelineTime simulate_pipeline(const PipelineCosts& costs, const PipelinePasses& passes,
                               PipelineEvents events = PipelineEvents::kNone);

// The schedule of a pipeline whose chunks have one layer each: a chunk's layers run back to back,
// so one stands for all. Layers are numbered along the model.
schedule::Schedule condensed_schedule(const schedule::ScheduleShape& shape);

}  // namespace smp::time
