#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

// The wire cost of smp's collectives as a pure function. The planner predicts with it, and lib/comm
// counts the bytes that it moves; the two must agree to the byte.
namespace smp::mesh {

enum class CollectiveOp {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kSend,
  kRecv,
  kBarrier,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
};
std::string_view name_of(CollectiveOp op);  // "all_reduce", ...

// An all_reduce of at most this many bytes is one-shot: every rank sends its whole buffer to every
// peer. A longer one is a mesh reduce-scatter followed by a mesh all-gather.
inline constexpr int64_t kOneShotBytes = 16 << 10;

// Elements of part `index` when `count` elements are cut in `parts` as evenly as possible, the
// first parts one longer.
int64_t part_size(int64_t count, int64_t parts, int64_t index);
int64_t part_begin(int64_t count, int64_t parts, int64_t index);

// The number of parts in which this many bytes of a GPU pass through the host, so that copies to
// the host, messages and copies back overlap. A smaller part costs more than the overlap saves.
int64_t parts_by_host(int64_t bytes);

// Payload bytes that rank `rank` of a group of `size` sends to its peers. count is in elements. It
// counts the whole buffer for all_reduce, reduce, broadcast, send and reduce_scatter (its input).
// It counts one rank's part for all_gather, gather and scatter, and one pair's part for all_to_all.
// root is read by the calls that have one. `hosts` is the number of hosts of the group's HostGrid.
// Between hosts the last count % size elements of an all_reduce are one-shot. Sums of 16-bit parts
// that several ranks of a host have added travel in fp32. A broadcast or a scatter goes from host
// to host first, a gather or an all_to_all last.
int64_t wire_bytes(CollectiveOp op, int64_t size, int64_t rank, int64_t count,
                   int64_t element_bytes, int64_t root = 0, int64_t hosts = 1);

// The position of a group's ranks on hosts, for collectives between hosts. Member r is number r %
// per_host on host r / per_host of the group. If the members are not evenly spread, host after
// host, each rank counts as a host of its own.
struct HostGrid {
  int64_t hosts = 1;
  int64_t per_host = 1;
};
HostGrid host_grid(const std::vector<int64_t>& host_of_member);
// The grid of members 0, stride, 2 stride ... of a job with this many ranks on each host.
HostGrid host_grid(int64_t size, int64_t stride, int64_t ranks_per_host);

// Shared memory of one rank's part of a group: a ring of slots that all peers read, a mailbox that
// is divided among the peers for send and recv, and counters (64-byte lines, rounded up to pages).
inline constexpr int64_t kRingSlots = 4;
inline constexpr int64_t kSlotBytes = 256 << 10;
inline constexpr int64_t kRingBytes = 2 * kRingSlots * kSlotBytes;  // short ones move about in it
inline constexpr int64_t kMailboxBytes = 1 << 20;
inline constexpr int64_t kControlLines = 13;         // of a rank itself
inline constexpr int64_t kControlLinesPerPeer = 11;  // and for each rank of the group

// Limits of one host's shared memory: ranks of a job, and groups of them, including the world.
inline constexpr int kMaxRanks = 256;
inline constexpr int kMaxGroups = 256;
// Limits of a job on several hosts.
inline constexpr int kMaxRanksOfHosts = 1024;

// Bytes that a group of `group_size` costs each of its ranks; 0 for a group of one.
int64_t segment_bytes(int64_t group_size);

// Between hosts a message holds at most this many bytes, beside its header. Of each peer in a
// channel a rank takes this many messages before it must have looked at the first. It has a buffer
// ready for each, so no message arrives unexpected. The bytes that a rank has sent and the network
// has not taken over stay below the window.
inline constexpr int64_t kMessageBytes = 128 << 10;
inline constexpr int64_t kMessageHeaderBytes = 192;
inline constexpr int64_t kCredits = 4;
inline constexpr int64_t kWindowBytes = 4 << 20;

// Bytes that the channels of a group between `hosts` hosts cost each of its ranks; and the send
// buffer of a rank, which it has once.
int64_t channel_bytes(int64_t hosts);
int64_t window_bytes();
// All that a group costs each of its ranks. The world's group includes the window.
int64_t group_bytes(const HostGrid& grid, bool is_world);

}  // namespace smp::mesh
