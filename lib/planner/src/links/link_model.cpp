#include "links/link_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "links/host_exchange.h"
#include "links/rate.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/planner/links/collective_seconds.h"

namespace smp::links {
namespace {

// What a collective costs before its first round, in rounds inside a host: launch, protocol, flags.
// NCCL on 2 to 8 A100 of a host at 1 to 64 MiB (VIA-Research/vTrain's nccl-tests) is 8 + 2 (N - 1)
// rounds of 3.6 us: fitted, mean residual 7 %.
constexpr double kStartRounds = 8;
// SMDDP's mesh uses 90 % of the links where NCCL's rings use 80 % (AWS' page on SMDDP AllGather).
constexpr double kMeshGain = 0.9 / 0.8;
constexpr double kMeshMultiprocessors = 9;  // "under 9" of its all-gather (same page)
// Of an all-to-all over hosts: each pair of ranks has a message of its own.
constexpr double kMessageRounds = 0.1;

// NCCL's protocols, against the first, which the cluster files' latencies are of: small messages
// carry flags between their words, which costs bandwidth and saves hops their fences. Latencies and
// shares of src/graph/tuning.cc (Simple 3.4 and 14 us, LL128 1.9 and 4, LL 1.8 x 0.6 and 2.7).
struct Protocol {
  double inside_latency, between_latency, bandwidth;
  bool needs_nvlink;
};
constexpr Protocol kProtocols[] = {
    {1, 1, 1, false}, {1.9 / 3.4, 4.0 / 14, 0.92, true}, {1.8 * 0.6 / 3.4, 2.7 / 14, 0.25, false}};

// Seconds of hops: inside hosts, and between them.
struct Hops {
  double inside = 0;
  double between = 0;

  double seconds(const Protocol& protocol) const {
    return inside * protocol.inside_latency + between * protocol.between_latency;
  }
};

struct Path {
  double rate = 0;  // bytes a second that each rank passes on
  Hops ring;        // one way round the ring
  Hops tree;        // one way up a tree over the hosts
  bool between_hosts = false;
  bool nvlink = false;
};

double log2_ceil(double value) { return value > 1 ? std::ceil(std::log2(value)) : 0; }

Path path_of(const Placement& placement, const ClusterSpec& cluster) {
  Path path;
  const double size = static_cast<double>(placement.size);
  const double hosts = static_cast<double>(placement.hosts);
  const double local = static_cast<double>(placement.most_on_a_host);
  const double inside = cluster.intra_host_latency_s;
  const double between = cluster.inter_host_latency_s;
  if (placement.hosts == 1) {
    path.rate = cluster.intra_host_bytes_per_s;
    path.ring.inside = (size - 1) * inside;
    path.tree = path.ring;
    // Ranks on CPUs read all their peers at once; a round of waiting costs a turn on a core.
    if (cluster.device == DeviceKind::kCpu) path.ring.inside = log2_ceil(size) * inside;
    if (cluster.device == DeviceKind::kCpu) path.tree.inside = path.ring.inside / 2;
    return path;
  }
  // The members on a host share its links to the others: as many rings as members, each of which
  // crosses each border once.
  path.rate = local * cluster.inter_host_bytes_per_s;
  if (local > 1 && cluster.intra_host_bytes_per_s > 0) {
    path.rate = std::min(path.rate, cluster.intra_host_bytes_per_s);
  }
  path.ring = {(size - hosts) * inside, (hosts - 1) * between};
  path.tree = {(local - 1) * inside, log2_ceil(hosts) * between};
  path.between_hosts = cluster.device != DeviceKind::kCpu;
  path.nvlink = cluster.intra_host_bytes_per_s > cluster.host_link_bytes_per_s;
  return path;
}

// `ways` round the ring, or up and down the tree where that is shorter, and the bytes, with the
// protocol that is quickest for them. Groups on one host keep to the first: kStartRounds is fitted
// with it.
double rounds_s(const Path& path, double ways, double moved, bool or_tree) {
  double best = -1;
  for (const Protocol& protocol : kProtocols) {
    if (protocol.needs_nvlink && !path.nvlink) continue;
    double hops = path.ring.seconds(protocol);
    if (or_tree) hops = std::min(hops, path.tree.seconds(protocol));
    const double seconds = ways * hops + over(moved, path.rate * protocol.bandwidth);
    if (best < 0 || seconds < best) best = seconds;
    if (!path.between_hosts) break;
  }
  return best;
}

double start_s(const ClusterSpec& cluster) {
  return cluster.device == DeviceKind::kCpu ? 0 : kStartRounds * cluster.intra_host_latency_s;
}

double share_moved(const Placement& placement) {
  const double size = static_cast<double>(placement.size);
  return (size - 1) / size;
}

// Measured calls of groups of `ranks` ranks, linear between neighbours; beyond the last one at its
// bandwidth. Returns a negative number when there are none.
double measured_of_size_s(const std::vector<LinkPoint>& points, mesh::CollectiveOp op,
                          int64_t ranks, double bytes) {
  const LinkPoint* below = nullptr;
  const LinkPoint* above = nullptr;
  for (const LinkPoint& point : points) {
    if (point.op != op || point.ranks != ranks) continue;
    if (static_cast<double>(point.bytes) <= bytes) {
      if (below == nullptr || point.bytes > below->bytes) below = &point;
    } else if (above == nullptr || point.bytes < above->bytes) {
      above = &point;
    }
  }
  if (below == nullptr && above == nullptr) return -1;
  if (below == nullptr) return above->seconds;  // smaller messages take as long: latency
  const double low = static_cast<double>(below->bytes);
  if (above == nullptr) return below->seconds * bytes / low;
  const double high = static_cast<double>(above->bytes);
  return below->seconds + (above->seconds - below->seconds) * (bytes - low) / (high - low);
}

// The same for groups of a size N that was not measured itself, between the next smaller and larger
// ones that were: linear in 1 / N, as is the share (N - 1) / N of the buffer that a rank gets from
// others (hops grow between log N and N; of 3 ranks on 2 CPUs two wait for each other's turns), but
// in N where one rank sends all of it to each.
double measured_s(const std::vector<LinkPoint>& points, mesh::CollectiveOp op, int64_t ranks,
                  double bytes, bool all_to_each) {
  int64_t fewer = 0, more = 0;  // 0: none
  for (const LinkPoint& point : points) {
    if (point.op != op) continue;
    if (point.ranks <= ranks) fewer = std::max(fewer, point.ranks);
    if (point.ranks >= ranks && (more == 0 || point.ranks < more)) more = point.ranks;
  }
  if (fewer == 0 || more == 0) return -1;
  const double low = measured_of_size_s(points, op, fewer, bytes);
  if (fewer == more) return low;
  const double high = measured_of_size_s(points, op, more, bytes);
  const auto at = [&](int64_t count) {
    return all_to_each ? static_cast<double>(count) : -1 / static_cast<double>(count);
  };
  const double share = (at(ranks) - at(fewer)) / (at(more) - at(fewer));
  return low + (high - low) * share;
}

double measured_s(mesh::CollectiveOp op, const Placement& placement, const ClusterSpec& cluster,
                  double bytes) {
  const auto& points = placement.hosts == 1 ? cluster.intra_host_points : cluster.inter_host_points;
  if (points.empty()) return -1;
  // Points between hosts are of groups that fill their hosts.
  if (placement.hosts > 1 && placement.most_on_a_host != cluster.processes_per_host) return -1;
  // Inside a host each rank copies what the root has, and the root reads what all of them have.
  const bool all_to_each = op == mesh::CollectiveOp::kReduce ||
                           (op == mesh::CollectiveOp::kBroadcast && placement.hosts > 1);
  return measured_s(points, op, placement.size, bytes, all_to_each);
}

// To or from one rank; where it was not measured itself, as a reduce-scatter moves as much.
double rooted_s(mesh::CollectiveOp op, double bytes, const Placement& placement,
                const ClusterSpec& cluster) {
  const double measured = measured_s(op, placement, cluster, bytes);
  return measured >= 0 ? measured : reduce_scatter_s(bytes, placement, cluster);
}

// The ring's share of an all-reduce that is an all-gather or a reduce-scatter.
double half_s(mesh::CollectiveOp op, double bytes, const Placement& placement,
              const ClusterSpec& cluster, CollectiveBackend how) {
  if (placement.size <= 1) return 0;
  if (how == CollectiveBackend::kHost) return by_host_s(op, bytes, placement, cluster);
  const double measured = measured_s(op, placement, cluster, bytes);
  if (measured >= 0) return measured;
  const double both = measured_s(mesh::CollectiveOp::kAllReduce, placement, cluster, bytes);
  if (both >= 0) return both / 2;
  const Path path = path_of(placement, cluster);
  const double moved = bytes * share_moved(placement);
  if (how == CollectiveBackend::kMesh && placement.hosts > 1) {
    return start_s(cluster) +
           cluster.intra_host_latency_s * static_cast<double>(placement.most_on_a_host) +
           cluster.inter_host_latency_s + over(moved, path.rate * kMeshGain);
  }
  return start_s(cluster) + rounds_s(path, 1, moved, false);
}

}  // namespace

CollectiveBackend exchange_of(const JobSpec& job, mesh::Axis axis) {
  const auto kind = layout::collectives_of(job.parallel, axis).value_or(CollectivesKind::kNccl);
  if (kind == CollectivesKind::kNccl || job.cluster.device == DeviceKind::kCpu) {
    return CollectiveBackend::kNccl;
  }
  if (job.parallel.framework.is_engine()) return CollectiveBackend::kHost;
  // SMDDP's groups are those of data parallelism.
  const bool data =
      axis == mesh::Axis::kShard || axis == mesh::Axis::kReplica || axis == mesh::Axis::kData;
  return data ? CollectiveBackend::kMesh : CollectiveBackend::kNccl;
}

double all_reduce_s(double bytes, const Placement& placement, const ClusterSpec& cluster,
                    CollectiveBackend how) {
  if (placement.size <= 1) return 0;
  if (how == CollectiveBackend::kHost)
    return by_host_s(mesh::CollectiveOp::kAllReduce, bytes, placement, cluster);
  const double measured = measured_s(mesh::CollectiveOp::kAllReduce, placement, cluster, bytes);
  if (measured >= 0) return measured;
  const Path path = path_of(placement, cluster);
  const double moved = 2 * bytes * share_moved(placement);
  if (how == CollectiveBackend::kMesh && placement.hosts > 1) {
    // Gradients go to host memory, are summed there by CPUs, and come back.
    const double copies = over(2 * bytes, cluster.host_link_bytes_per_s);
    return start_s(cluster) + 2 * cluster.inter_host_latency_s +
           std::max(copies, over(moved, path.rate * kMeshGain));
  }
  return start_s(cluster) + rounds_s(path, 2, moved, true);
}

double all_gather_s(double bytes, const Placement& placement, const ClusterSpec& cluster,
                    CollectiveBackend how) {
  return half_s(mesh::CollectiveOp::kAllGather, bytes, placement, cluster, how);
}

double reduce_scatter_s(double bytes, const Placement& placement, const ClusterSpec& cluster,
                        CollectiveBackend how) {
  // SMDDP has no reduce-scatter: it stays with NCCL.
  return half_s(mesh::CollectiveOp::kReduceScatter, bytes, placement, cluster,
                how == CollectiveBackend::kMesh ? CollectiveBackend::kNccl : how);
}

double broadcast_s(double bytes, const Placement& placement, const ClusterSpec& cluster,
                   CollectiveBackend how) {
  if (placement.size <= 1) return 0;
  if (how == CollectiveBackend::kHost)
    return by_host_s(mesh::CollectiveOp::kBroadcast, bytes, placement, cluster);
  const double measured = measured_s(mesh::CollectiveOp::kBroadcast, placement, cluster, bytes);
  if (measured >= 0) return measured;
  return start_s(cluster) + rounds_s(path_of(placement, cluster), 1, bytes, false);
}

double all_to_all_s(double bytes, const Placement& placement, const ClusterSpec& cluster) {
  if (placement.size <= 1) return 0;
  const double measured = measured_s(mesh::CollectiveOp::kAllToAll, placement, cluster, bytes);
  if (measured >= 0) return measured;
  const double size = static_cast<double>(placement.size);
  const double local = static_cast<double>(placement.most_on_a_host);
  const double inside = over(bytes * (local - 1) / size, cluster.intra_host_bytes_per_s);
  const double between =
      placement.hosts > 1 ? over(bytes * (size - local) / size, cluster.inter_host_bytes_per_s) : 0;
  const double latency =
      placement.hosts > 1 ? cluster.inter_host_latency_s : cluster.intra_host_latency_s;
  return start_s(cluster) + latency * (1 + kMessageRounds * size) + std::max(inside, between);
}

double send_s(double bytes, bool same_host, const ClusterSpec& cluster) {
  const auto& points = same_host ? cluster.intra_host_points : cluster.inter_host_points;
  int64_t fewest = 0;  // of whom the least else is on the way
  for (const LinkPoint& point : points)
    if (point.op == mesh::CollectiveOp::kSend && (fewest == 0 || point.ranks < fewest))
      fewest = point.ranks;
  if (fewest > 0) return measured_of_size_s(points, mesh::CollectiveOp::kSend, fewest, bytes);
  return same_host ? cluster.intra_host_latency_s + over(bytes, cluster.intra_host_bytes_per_s)
                   : cluster.inter_host_latency_s + over(bytes, cluster.inter_host_bytes_per_s);
}

double multiprocessors_taken(const ClusterSpec& cluster, CollectiveBackend how) {
  if (how == CollectiveBackend::kHost) return 0;
  return how == CollectiveBackend::kMesh
             ? std::min(kMeshMultiprocessors, cluster.collective_multiprocessors)
             : cluster.collective_multiprocessors;
}

double collective_seconds(mesh::CollectiveOp op, double bytes, int64_t ranks, int64_t hosts,
                          const ClusterSpec& cluster) {
  const Placement placement{ranks, hosts, (ranks + hosts - 1) / hosts};
  switch (op) {
    case mesh::CollectiveOp::kAllReduce: return all_reduce_s(bytes, placement, cluster);
    case mesh::CollectiveOp::kAllGather: return all_gather_s(bytes, placement, cluster);
    case mesh::CollectiveOp::kBroadcast: return broadcast_s(bytes, placement, cluster);
    case mesh::CollectiveOp::kReduceScatter: return reduce_scatter_s(bytes, placement, cluster);
    case mesh::CollectiveOp::kReduce:
    case mesh::CollectiveOp::kGather:
    case mesh::CollectiveOp::kScatter: return rooted_s(op, bytes, placement, cluster);
    case mesh::CollectiveOp::kAllToAll: return all_to_all_s(bytes, placement, cluster);
    case mesh::CollectiveOp::kSend:
    case mesh::CollectiveOp::kRecv: {
      const double measured = measured_s(mesh::CollectiveOp::kSend, placement, cluster, bytes);
      return measured >= 0 ? measured : send_s(bytes, hosts == 1, cluster);
    }
    case mesh::CollectiveOp::kBarrier: return 0;
  }
  return 0;
}

}  // namespace smp::links
