#pragma once

#include <cstdint>
#include <string_view>

// What the collectives of smp cost on the wire, as a pure function: the planner predicts with it,
// and lib/comm counts what it really moves; the two must agree to the byte.
namespace smp {

enum class CollectiveOp {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kSend,
  kRecv,
  kBarrier,
};
std::string_view name_of(CollectiveOp op);  // "all_reduce", ...

// An all_reduce of at most this many bytes is one-shot: every rank sends its whole buffer to every
// peer. A longer one is a mesh reduce-scatter followed by a mesh all-gather.
inline constexpr int64_t kOneShotBytes = 16 << 10;

// Elements of part `index` when `count` elements are cut in `parts` as evenly as possible, the
// first parts one longer.
int64_t part_size(int64_t count, int64_t parts, int64_t index);
int64_t part_begin(int64_t count, int64_t parts, int64_t index);

// Payload bytes that rank `rank` of a group of `size` sends to its peers.
// count is in elements: of the whole buffer for all_reduce, broadcast, send and reduce_scatter (its
// input), of one rank's contribution for all_gather. root is read by broadcast only.
int64_t wire_bytes(CollectiveOp op, int64_t size, int64_t rank, int64_t count,
                   int64_t element_bytes, int64_t root = 0);

// Shared memory of one rank's part of a group: a ring of slots that all peers read, a mailbox that
// is divided among the peers for send and recv, and counters (64-byte lines, rounded up to pages).
inline constexpr int64_t kRingSlots = 4;
inline constexpr int64_t kSlotBytes = 64 << 10;
inline constexpr int64_t kMailboxBytes = 128 << 10;
inline constexpr int64_t kControlLines = 10;         // of a rank itself
inline constexpr int64_t kControlLinesPerPeer = 11;  // and for each rank of the group

// What one host's shared memory holds at most: ranks of a job, and groups of them, the world's
// included.
inline constexpr int kMaxRanks = 256;
inline constexpr int kMaxGroups = 256;

// Bytes that a group of `group_size` costs each of its ranks; 0 for a group of one.
int64_t segment_bytes(int64_t group_size);

}  // namespace smp
