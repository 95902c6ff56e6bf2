#pragma once

#include <string>
#include <vector>

namespace smp {

struct Plan;

// What the plan asks for and this version of the engine cannot execute, one line each: the setting
// by its name, and the value that would run. Empty = it runs. The one table of its kind: the
// planner reads it before it chooses a layout for this host's CPUs, the launcher before it starts a
// rank, the worker before it allocates. Pure; any thread.
std::vector<std::string> what_engine_cannot_run(const Plan& plan);

// Of these, what keeps a single rank's share from being built, wherever the plan is for.
std::vector<std::string> what_engine_cannot_build(const Plan& plan);

// What stands against planning the job for our engine: what it cannot run, or, of a job that is
// only planned (training.steps: 0), what it cannot build.
std::vector<std::string> what_engine_lacks(const Plan& plan);

}  // namespace smp
