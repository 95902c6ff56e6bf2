#include "smp/plan/mesh/collective.h"

#include <algorithm>
#include <set>

#include "smp/plan/base/check.h"

namespace smp::mesh {

std::string_view name_of(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllReduce: return "all_reduce";
    case CollectiveOp::kAllGather: return "all_gather";
    case CollectiveOp::kReduceScatter: return "reduce_scatter";
    case CollectiveOp::kBroadcast: return "broadcast";
    case CollectiveOp::kSend: return "send";
    case CollectiveOp::kRecv: return "recv";
    case CollectiveOp::kBarrier: return "barrier";
    case CollectiveOp::kReduce: return "reduce";
    case CollectiveOp::kGather: return "gather";
    case CollectiveOp::kScatter: return "scatter";
    case CollectiveOp::kAllToAll: return "all_to_all";
  }
  check_failed(__FILE__, __LINE__, "unknown collective");
}

int64_t part_size(int64_t count, int64_t parts, int64_t index) {
  return count / parts + (index < count % parts ? 1 : 0);
}

int64_t part_begin(int64_t count, int64_t parts, int64_t index) {
  const int64_t longer = count % parts;
  return index * (count / parts) + (index < longer ? index : longer);
}

namespace {

// Each rank owns the same number of elements; what is left is one-shot. Sums come back narrow.
int64_t all_reduce_between_hosts(int64_t size, int64_t count, int64_t element_bytes,
                                 int64_t wide_bytes) {
  const int64_t peers = size - 1;
  return peers * (count / size * (wide_bytes + element_bytes) + count % size * element_bytes);
}

}  // namespace

HostGrid host_grid(const std::vector<int64_t>& host_of_member) {
  const auto size = static_cast<int64_t>(host_of_member.size());
  int64_t per_host = 1;
  while (per_host < size && host_of_member[size_t(per_host)] == host_of_member[0]) ++per_host;
  const HostGrid apart{size, 1};
  if (size % per_host != 0) return apart;
  std::set<int64_t> seen;
  for (int64_t first = 0; first < size; first += per_host) {
    const int64_t host = host_of_member[size_t(first)];
    if (!seen.insert(host).second) return apart;
    for (int64_t i = 1; i < per_host; ++i)
      if (host_of_member[size_t(first + i)] != host) return apart;
  }
  return {size / per_host, per_host};
}

HostGrid host_grid(int64_t size, int64_t stride, int64_t ranks_per_host) {
  if ((size - 1) * stride < ranks_per_host) return {1, size};
  const int64_t per_host = ranks_per_host % stride == 0 ? ranks_per_host / stride : 1;
  if (size % per_host != 0) return {size, 1};
  return {size / per_host, per_host};
}

int64_t parts_by_host(int64_t bytes) {
  constexpr int64_t kPartBytes = 4 << 20;
  return std::max<int64_t>(1, bytes / kPartBytes);
}

int64_t wire_bytes(CollectiveOp op, int64_t size, int64_t rank, int64_t count,
                   int64_t element_bytes, int64_t root, int64_t hosts) {
  const int64_t peers = size - 1, per_host = size / hosts;
  const bool widened = element_bytes == 2 && hosts > 1 && per_host > 1;
  const int64_t wide_bytes = widened ? 4 : element_bytes;
  const bool on_rail = rank % per_host == root % per_host;  // the root's
  switch (op) {
    case CollectiveOp::kAllReduce: {
      if (count * element_bytes <= kOneShotBytes) return peers * count * element_bytes;
      if (hosts > 1) return all_reduce_between_hosts(size, count, element_bytes, wide_bytes);
      const int64_t own = part_size(count, size, rank);
      return ((count - own) + peers * own) * element_bytes;
    }
    case CollectiveOp::kAllGather: return peers * count * element_bytes;
    case CollectiveOp::kReduceScatter: return (count - count / size) * wide_bytes;
    case CollectiveOp::kBroadcast: {
      if (!on_rail) return 0;
      const int64_t others = rank == root ? hosts - 1 : 0;
      return (others + per_host - 1) * count * element_bytes;
    }
    case CollectiveOp::kSend: return count * element_bytes;
    case CollectiveOp::kRecv: return 0;
    case CollectiveOp::kBarrier: return 0;
    case CollectiveOp::kReduce: return rank == root ? 0 : count * wide_bytes;
    case CollectiveOp::kGather: {
      if (rank == root) return 0;
      return (on_rail ? per_host : 1) * count * element_bytes;
    }
    case CollectiveOp::kScatter: {
      if (!on_rail) return 0;
      return ((rank == root ? size : per_host) - 1) * count * element_bytes;
    }
    case CollectiveOp::kAllToAll:
      return ((per_host - 1) * hosts + (hosts - 1) * per_host) * count * element_bytes;
  }
  check_failed(__FILE__, __LINE__, "unknown collective");
}

int64_t segment_bytes(int64_t group_size) {
  if (group_size <= 1) return 0;
  constexpr int64_t kLineBytes = 64, kPageBytes = 4096;
  const int64_t control = (kControlLines + kControlLinesPerPeer * group_size) * kLineBytes;
  const int64_t control_pages = (control + kPageBytes - 1) / kPageBytes;
  return control_pages * kPageBytes + kRingBytes + kMailboxBytes;
}

int64_t channel_bytes(int64_t hosts) {
  return (hosts - 1) * kCredits * (kMessageBytes + kMessageHeaderBytes);
}

int64_t window_bytes() {
  return kWindowBytes / kMessageBytes * (kMessageBytes + kMessageHeaderBytes);
}

int64_t group_bytes(const HostGrid& grid, bool is_world) {
  const bool window = grid.hosts > 1 && is_world;
  return segment_bytes(grid.per_host) + channel_bytes(grid.hosts) + (window ? window_bytes() : 0);
}

}  // namespace smp::mesh
