#pragma once

#include "cost/layer_costs.h"
#include "smp/plan/layout/stage_layers.h"
#include "smp/plan/schedule/schedule_parameters.h"
#include "smp/plan/spec/plan.h"
#include "time/step_player.h"

namespace smp::time {

// What the actions take of a plan that our engine executes. `parameters` are those of its schedule,
// `stages` the layers that each holds.
StepActionSeconds action_seconds(const Plan& plan, const choice::LayoutChoice& choice,
                                 const cost::LayerCosts& costs,
                                 const schedule::ScheduleParameters& parameters,
                                 const std::vector<layout::StageLayers>& stages);

}  // namespace smp::time
