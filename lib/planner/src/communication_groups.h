#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/plan.h"

namespace smp {

// Sizes of the groups that a rank of this class opens on this host, each above 1. The engine opens
// one communicator for each of them and keeps it for the whole run.
std::vector<int64_t> communication_group_sizes(const Plan& plan, int64_t stage, int64_t tensor);

}  // namespace smp
