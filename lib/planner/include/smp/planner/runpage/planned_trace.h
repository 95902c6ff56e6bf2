#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "smp/plan/runinfo/step_trace.h"
#include "smp/plan/spec/plan.h"

namespace smp::runpage {

// The step that is predicted, as slices like those that ranks record
// (smp/plan/runinfo/trace_file.h): of each stage, as its first rank, every action of the schedule
// in its order, from 0. A pass takes what predict_time() simulates for it, dealt to its layers by
// what each kind of layer takes. Actions that the model gives no time have none. What follows the
// last pass is dealt evenly: reductions to their waits, the update to the buckets, gathers of
// updated weights to their actions. Calls are messages between stages, reductions and gathers, each
// as long as the model says of it alone; those within a layer are in its pass. Empty where the
// cluster's rates are unknown. Pure.
std::vector<runinfo::RankTrace> planned_trace(const Plan& plan);

// What planned_trace() would be, as a file of at most kMostPlannedSlices: a process for each stage
// or, with `by_rank`, for each rank, all of a stage alike. Throws ConfigError without rates and for
// a schedule with more actions.
inline constexpr int64_t kMostPlannedSlices = 1'000'000;
void write_planned_trace(const Plan& plan, bool by_rank,
                         const std::function<void(std::string_view)>& out);

}  // namespace smp::runpage
