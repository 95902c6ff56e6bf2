#pragma once

#include <cstddef>
#include <vector>

namespace smp::hosts {

// Consecutive hosts of which the first is reached from here, and reaches the others.
struct Branch {
  size_t first = 0, count = 0;
};

// Cuts the hosts into as many branches as one agent reaches, of equal size but for one. As many as
// there are hosts where those are no more, or `fan_out` is 0: a branch each.
std::vector<Branch> branches_of(size_t hosts, int fan_out);

// How many agents one speaks through to the farthest of them, that one included.
int levels_of(size_t hosts, int fan_out);

}  // namespace smp::hosts
