#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/schedule/action.h"
#include "smp/plan/schedule/schedule_parameters.h"
#include "smp/plan/schedule/schedule_shape.h"

namespace smp::schedule {

// A Schedule is one training step as data: for each stage the ordered list of actions that each of
// its ranks executes (ranks of a stage differ only in their tensor and data coordinates). Made once
// from the plan, priced by the planner, proved by verify(), executed by the runtime.
//
// Words: a *microbatch* is what passes through the pipeline at once. A *chunk* is a run of layers
// that a stage holds; most schedules have one a stage. *Live* on a stage is a microbatch in a chunk
// whose forward has begun there and whose last gradient has not ended. A *channel* is the ordered
// pair (sending stage, receiving stage); messages of a channel arrive in the order sent.
struct Schedule {
  int64_t stages = 1;
  int64_t microbatches = 1;
  std::vector<int64_t> live_bound;  // per stage: most that are live, as the schedule promises
  std::vector<std::vector<Action>> actions;  // per stage
};

// Throws ConfigError where schedule_refused().
Schedule make_schedule(const ScheduleParameters& parameters);

// The most that is live on `stage` at any time, by walking its actions: microbatches, or
// microbatches in a chunk where it has several.
int64_t max_live(const Schedule& schedule, int64_t stage);

// Proves a schedule by simulating all stages. A send needs its receiver (nothing is buffered), and
// a channel keeps its order. Proved: every send meets its receive; nobody waits for ever; a
// microbatch passes each layer forward and backward once and in order; data are there before they
// are used; the live bound is kept. Returns nothing when all hold, else the counter-example, for
// people.
std::optional<std::string> verify(const Schedule& schedule, const ScheduleParameters& parameters);

}  // namespace smp::schedule
