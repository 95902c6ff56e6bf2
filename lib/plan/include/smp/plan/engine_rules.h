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

}  // namespace smp
