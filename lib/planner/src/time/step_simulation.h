#pragma once

#include "cost/layer_costs.h"
#include "smp/planner/time/time_model.h"
#include "time/pipeline_time.h"

namespace smp::time {

// A step of a plan, played action by action.
struct SimulatedStep {
  // Of our engine all that its ranks execute. Of other frameworks, whose actions are not known, the
  // passes and messages of condensed_schedule(); what follows them is in `time` alone.
  schedule::Schedule schedule;
  bool is_condensed = false;
  int64_t head_layer = -1;  // whose weight gradients belong to its backward; -1 = none
  PlayedStep played;
  TimePrediction time;
};
SimulatedStep simulate_step(const Plan& plan, PlayedDetail detail);
// `costs`: of the plan's layers.
SimulatedStep simulate_step(const Plan& plan, const cost::LayerCosts& costs, PlayedDetail detail);
// How many actions it plays, of all stages.
int64_t played_actions(const Plan& plan);

}  // namespace smp::time
