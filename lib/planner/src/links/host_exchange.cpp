#include "links/host_exchange.h"

#include <algorithm>

#include "links/rate.h"

namespace smp::links {
namespace {

// One copy between a GPU and pinned memory, and hearing of its end (libfabric's issue 8881).
constexpr double kCopyStartS = 15e-6;

}  // namespace

// Words: `down` and `up` are what a rank copies to its host and back, `read` what the CPUs of a
// host read to sum, for each rank; `sent` what a host sends to the others for each of its groups.
double by_host_s(mesh::CollectiveOp op, double bytes, const Placement& placement,
                 const ClusterSpec& cluster) {
  const double size = static_cast<double>(placement.size);
  const double hosts = static_cast<double>(placement.hosts);
  const double local = static_cast<double>(placement.most_on_a_host);
  const double ranks = static_cast<double>(cluster.processes_per_host);
  const bool reduces =
      op == mesh::CollectiveOp::kAllReduce || op == mesh::CollectiveOp::kReduceScatter;
  const bool spreads = op == mesh::CollectiveOp::kAllReduce || op == mesh::CollectiveOp::kBroadcast;
  const double down = op == mesh::CollectiveOp::kAllGather ? bytes / size : bytes;
  const double up = spreads || op == mesh::CollectiveOp::kAllGather ? bytes : bytes / size;
  const double read = reduces ? bytes : 0;
  const double made = reduces ? bytes / local : 0;
  const double ways = op == mesh::CollectiveOp::kAllReduce ? 2 : 1;
  const double sent = ways * bytes * (hosts - 1) / hosts;

  const double stages[] = {
      over(down, cluster.host_link_bytes_per_s),
      over(ranks * (down + read + made + up), kHostBytesPerS),
      hosts > 1 ? over(sent, local * cluster.inter_host_bytes_per_s) : 0,
      over(up, cluster.host_link_bytes_per_s),
  };
  double all = 0;
  for (const double stage : stages) all += stage;
  const double longest = *std::max_element(std::begin(stages), std::end(stages));
  const double parts = static_cast<double>(mesh::parts_by_host(static_cast<int64_t>(bytes)));
  const double between = hosts > 1 ? ways * cluster.inter_host_latency_s : 0;
  return 2 * kCopyStartS + cluster.intra_host_latency_s + between + longest +
         (all - longest) / parts;  // at the ends one is alone
}

}  // namespace smp::links
