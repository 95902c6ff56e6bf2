#pragma once

#include <cstdint>
#include <string>

#include "smp/plan/spec/plan.h"

namespace smp::report {

// The groups of one rank under SMP's names (WORLD, MP, PP, TP, DP, RDP), its coordinates, and the
// sizes in both countings: SMP's dp_size is world / p, its rdp_size is our data-parallel degree.
// For people. Throws ConfigError when there is no such rank.
std::string describe_groups(const Plan& plan, int64_t rank);

}  // namespace smp::report
