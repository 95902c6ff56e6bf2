#include "links/placement.h"

#include <algorithm>
#include <map>

namespace smp::links {

Placement placement_of(const std::vector<int64_t>& ranks, int64_t processes_per_host) {
  std::map<int64_t, int64_t> on_host;
  Placement placement;
  placement.size = static_cast<int64_t>(ranks.size());
  for (const int64_t rank : ranks) {
    placement.most_on_a_host =
        std::max(placement.most_on_a_host, ++on_host[rank / processes_per_host]);
  }
  placement.hosts = std::max<int64_t>(1, static_cast<int64_t>(on_host.size()));
  return placement;
}

Placement placement_of(int64_t size, int64_t stride, int64_t processes_per_host) {
  const int64_t fitting = std::max<int64_t>(1, processes_per_host / std::max<int64_t>(1, stride));
  Placement placement;
  placement.size = size;
  placement.most_on_a_host = std::min(size, fitting);
  placement.hosts = (size + placement.most_on_a_host - 1) / placement.most_on_a_host;
  return placement;
}

}  // namespace smp::links
