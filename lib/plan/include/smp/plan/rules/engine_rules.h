#pragma once

#include <string>
#include <vector>

namespace smp {
struct Plan;
}

namespace smp::rules {

// The settings of the plan that this version of the engine cannot execute. Each line has the key,
// its value and the values that run. Empty = the engine runs the plan. The planner calls this
// before it chooses a layout for CPUs, the launcher before it starts a rank, the worker before it
// allocates. Pure; any thread.
std::vector<std::string> what_engine_cannot_run(const Plan& plan);

// The part of these settings that prevents a single rank's share from being built on any machine.
std::vector<std::string> what_engine_cannot_build(const Plan& plan);

// The settings that forbid planning the job for our engine: what_engine_cannot_run(), or for a job
// without training.steps what_engine_cannot_build().
std::vector<std::string> what_engine_lacks(const Plan& plan);

}  // namespace smp::rules
