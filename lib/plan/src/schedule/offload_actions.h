#pragma once

#include <vector>

#include "smp/plan/schedule/action.h"
#include "smp/plan/schedule/schedule_parameters.h"

namespace smp::schedule {

// Inserts kOffload and kFetch into a stage's actions. A call is offloaded right after its forward.
// It is fetched when the backward of the call `loading_horizon` calls before its own begins; the
// first calls are fetched when the first backward begins. A call stays on the device if its fetch
// would come before its forward.
void add_offloads(const ScheduleParameters& parameters, std::vector<Action>& actions);

}  // namespace smp::schedule
