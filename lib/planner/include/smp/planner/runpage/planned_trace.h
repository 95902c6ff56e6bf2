#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "smp/plan/runinfo/step_trace.h"
#include "smp/plan/spec/plan.h"

namespace smp::runpage {

// The step that predict_time() plays, as slices like those that ranks record
// (smp/plan/runinfo/trace_file.h): of each stage, as its first rank, every action in its order,
// from 0. Calls are messages between stages, reductions and gathers; those within a layer are in
// its actions. Of another framework than our engine it has passes and messages alone, because its
// other actions are not known. Empty where the cluster's rates are unknown. Pure.
std::vector<runinfo::RankTrace> planned_trace(const Plan& plan);

// What planned_trace() would be, as a file of at most kMostPlannedSlices: a process for each stage
// or, with `by_rank`, for each rank, all of a stage alike. Throws ConfigError without rates and for
// a schedule with more actions.
inline constexpr int64_t kMostPlannedSlices = 1'000'000;
void write_planned_trace(const Plan& plan, bool by_rank,
                         const std::function<void(std::string_view)>& out);

}  // namespace smp::runpage
