#pragma once

#include <vector>

#include "smp/plan/schedule/action.h"
#include "smp/plan/schedule/schedule_parameters.h"

namespace smp::schedule {

// Puts kOffload and kFetch between a stage's actions. A call is offloaded right after its forward
// and fetched when the backward of the call `loading_horizon` calls before its own begins (the
// first ones when the first backward does). One whose fetch would come before its forward stays
// where it is.
void add_offloads(const ScheduleParameters& parameters, std::vector<Action>& actions);

}  // namespace smp::schedule
