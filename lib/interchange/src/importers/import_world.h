#pragma once

#include <vector>

#include "smp/interchange/importers/import.h"

namespace smp::importers {

// Throws ConfigError where the files give the ranks and degrees of no mesh of so many: pipeline x
// tensor x context must divide the world size, and the shard degree what is left. Degrees that no
// file gives count as 1; without hosts and processes per host there is nothing to check.
void check_world(const std::vector<Imported>& files);

}  // namespace smp::importers
