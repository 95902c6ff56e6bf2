#pragma once

#include "smp/plan/spec/plan.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp::engine {

// For routers whose balancing loss counts the global batch. The ranks sum how many of the step's
// tokens chose each expert, in one all-reduce over all of them. Each of this rank's layers then has
// the mean of a microbatch, for its backwards. All ranks call it between forwards and backwards.
void sum_router_loads(const Plan& plan, parallel::ParallelModel& model);

// Before a step.
void forget_router_loads(parallel::ParallelModel& model);

}  // namespace smp::engine
