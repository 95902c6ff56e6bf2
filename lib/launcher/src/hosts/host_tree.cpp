#include "hosts/host_tree.h"

#include <algorithm>

namespace smp::hosts {

std::vector<Branch> branches_of(size_t hosts, int fan_out) {
  const size_t count = fan_out == 0 ? hosts : std::min(hosts, static_cast<size_t>(fan_out));
  std::vector<Branch> branches;
  size_t first = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t size = hosts / count + (i < hosts % count ? 1 : 0);
    branches.push_back({first, size});
    first += size;
  }
  return branches;
}

int levels_of(size_t hosts, int fan_out) {
  if (hosts == 0) return 0;
  return 1 + levels_of(branches_of(hosts, fan_out).front().count - 1, fan_out);
}

}  // namespace smp::hosts
