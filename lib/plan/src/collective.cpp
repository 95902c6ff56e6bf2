#include "smp/plan/collective.h"

#include "smp/plan/check.h"

namespace smp {

std::string_view name_of(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllReduce: return "all_reduce";
    case CollectiveOp::kAllGather: return "all_gather";
    case CollectiveOp::kReduceScatter: return "reduce_scatter";
    case CollectiveOp::kBroadcast: return "broadcast";
    case CollectiveOp::kSend: return "send";
    case CollectiveOp::kRecv: return "recv";
    case CollectiveOp::kBarrier: return "barrier";
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

int64_t wire_bytes(CollectiveOp op, int64_t size, int64_t rank, int64_t count,
                   int64_t element_bytes, int64_t root) {
  const int64_t peers = size - 1;
  switch (op) {
    case CollectiveOp::kAllReduce: {
      if (count * element_bytes <= kOneShotBytes) return peers * count * element_bytes;
      const int64_t own = part_size(count, size, rank);
      return ((count - own) + peers * own) * element_bytes;
    }
    case CollectiveOp::kAllGather: return peers * count * element_bytes;
    case CollectiveOp::kReduceScatter: return (count - count / size) * element_bytes;
    case CollectiveOp::kBroadcast: return rank == root ? peers * count * element_bytes : 0;
    case CollectiveOp::kSend: return count * element_bytes;
    case CollectiveOp::kRecv: return 0;
    case CollectiveOp::kBarrier: return 0;
  }
  check_failed(__FILE__, __LINE__, "unknown collective");
}

int64_t segment_bytes(int64_t group_size) {
  if (group_size <= 1) return 0;
  constexpr int64_t kLineBytes = 64, kPageBytes = 4096;
  const int64_t control = (kControlLines + kControlLinesPerPeer * group_size) * kLineBytes;
  const int64_t control_pages = (control + kPageBytes - 1) / kPageBytes;
  return control_pages * kPageBytes + kRingSlots * kSlotBytes + kMailboxBytes;
}

}  // namespace smp
