#pragma once

#include <cstdint>
#include <vector>

namespace smp::links {

// Where the members of a group sit.
struct Placement {
  int64_t size = 1;
  int64_t hosts = 1;  // over which they spread
  int64_t most_on_a_host = 1;
};
Placement placement_of(const std::vector<int64_t>& ranks, int64_t processes_per_host);
// Of `size` ranks, each `stride` behind the one before.
Placement placement_of(int64_t size, int64_t stride, int64_t processes_per_host);

}  // namespace smp::links
