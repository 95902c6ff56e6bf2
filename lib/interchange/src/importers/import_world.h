#pragma once

#include <vector>

#include "smp/interchange/importers/imported.h"

namespace smp::importers {

// Throws ConfigError if the ranks and degrees of the files do not form a mesh: pipeline x tensor x
// context must divide the world size, and the shard degree the quotient. A degree that no file
// gives is 1. Without hosts and processes per host there is nothing to check.
void check_world(const std::vector<Imported>& files);

}  // namespace smp::importers
