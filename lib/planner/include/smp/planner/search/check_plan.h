#pragma once

#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"

namespace smp::search {

// Proves a plan without running it. Checked: the degrees are legal and fill the cluster; the batch
// equation and its token limit; every rank's predicted peak against its memory, and the plan's own
// figures against this version's; host memory; the schedule, by verify(). On device cpu the engine
// must run it. Returns what is wrong, one line each; nothing = proved. Pure; any thread.
std::vector<std::string> check(const Plan& plan);

}  // namespace smp::search
