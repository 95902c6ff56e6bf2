#include "link_model.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace smp {
namespace {

// Bytes of the buffer that a collective makes whole: what crosses the border of each host.
double whole_bytes(const Traffic& row, const Placement& placement) {
  const double bytes = static_cast<double>(row.count * bytes_of(row.dtype));
  switch (row.op) {
    case CollectiveOp::kAllReduce: return 2 * bytes;
    case CollectiveOp::kAllGather: return bytes * static_cast<double>(placement.size);
    case CollectiveOp::kReduceScatter:
    case CollectiveOp::kBroadcast: return bytes;
    case CollectiveOp::kSend:
    case CollectiveOp::kRecv:
    case CollectiveOp::kBarrier: return 0;  // point to point: see seconds_of
  }
  return 0;
}

}  // namespace

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

double seconds_of(const Traffic& row, const Placement& placement, const ClusterSpec& cluster) {
  const bool point_to_point = row.op == CollectiveOp::kSend || row.op == CollectiveOp::kRecv;
  const double calls = static_cast<double>(row.calls);
  const double rounds =
      point_to_point ? 1 : std::ceil(std::log2(static_cast<double>(placement.size)));
  const double wire = static_cast<double>(row.wire_bytes);
  if (placement.hosts == 1) {
    return calls * rounds * cluster.intra_host_latency_s +
           over(wire, cluster.intra_host_bytes_per_s);
  }
  const double hosts = static_cast<double>(placement.hosts);
  const double entering = calls * whole_bytes(row, placement) * (hosts - 1) / hosts;
  const double between = point_to_point
                             ? over(wire, cluster.inter_host_bytes_per_s)
                             : over(entering / static_cast<double>(placement.most_on_a_host),
                                    cluster.inter_host_bytes_per_s);
  const double inside = placement.most_on_a_host > 1 && !point_to_point
                            ? over(wire, cluster.intra_host_bytes_per_s)
                            : 0;
  return calls * rounds * cluster.inter_host_latency_s + std::max(between, inside);
}

}  // namespace smp
