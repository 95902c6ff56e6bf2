#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "smp/plan/base/dtype.h"
#include "smp/plan/mesh/collective.h"

// The layout of the memory that the ranks of a job share. A fresh mapping is all zeros, and zero is
// a valid first state of everything here. The counters of a group only grow and, except those of
// pieces, have one writer each. A counter is stored after the bytes that it publishes, and loaded
// before they are read. Thread rule: everything that two ranks touch is an atomic, or is published
// by one.
namespace smp::segment {

inline constexpr size_t kLineBytes = 64;
inline constexpr size_t kPageBytes = 4096;
// Rounds up to whole lines.
inline constexpr size_t end_of_line(size_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}
inline constexpr uint64_t kCallsKept = 4;
// How far ahead of its last completed collective a rank may show a call. All peers have made the
// completed call, so they had completed the call kCallsAhead before it. Older entries are not
// needed.
inline constexpr uint64_t kCallsAhead = kCallsKept / 2;
inline constexpr size_t kLabelBytes = 80;

struct alignas(kLineBytes) Counter {
  std::atomic<uint64_t> value;
};

// The slots of its ring that a rank has published, and the fingerprint of the call of each slot. A
// rank that waits for a slot finds both in one cache line.
struct alignas(kLineBytes) Published {
  std::atomic<uint64_t> value;  // slots published
  std::atomic<uint64_t> prints[mesh::kRingSlots];
};
static_assert(sizeof(Published) == kLineBytes);

// A call of a rank. Its peers compare it with their own call before they touch any data.
struct alignas(kLineBytes) CallEntry {
  std::atomic<uint64_t> number;  // of this call, from 1; stored last
  uint64_t fingerprint;
  int64_t count;
  int32_t root;  // rank of the group; -1 without one
  uint8_t op, dtype, reduce_op;
  int64_t in_at, out_at;  // offsets in the job's memory, or -1
  char label[kLabelBytes];
};
static_assert(sizeof(CallEntry) == 2 * kLineBytes);

// One direction of one pair of ranks, owned by the sender.
struct Mail {
  CallEntry calls[kCallsKept];
  Counter made;  // chunks written
};

// A piece of a rank's part of a direct call. Any rank may make it; it writes both counters.
inline constexpr int kPieces = 8;  // in a part, at most
struct Piece {
  std::atomic<uint64_t> claimed;  // the last claim: see claim_of()
  std::atomic<uint64_t> done;     // number of the last call that has made it
};

struct RankControl {
  // kAbandoned: by an exception; the rank may yet report what went wrong.
  enum Closed : uint64_t { kOpen, kLeft, kAbandoned };
  Published published;
  alignas(kLineBytes) std::atomic<uint64_t> closed;
  std::atomic<uint64_t> gave_up;  // not 0: peers must not write to this rank's memory any more
  Counter shown;                  // how often this rank has shown its windows
  alignas(kLineBytes) Piece pieces[kPieces];
  CallEntry calls[kCallsKept];
};
static_assert(sizeof(RankControl) == mesh::kControlLines * kLineBytes);
static_assert(sizeof(Mail) + 2 * sizeof(Counter) == mesh::kControlLinesPerPeer * kLineBytes);

// Piece::claimed: the number of the call, and the rank of the group that makes the piece.
inline constexpr uint64_t claim_of(uint64_t number, int rank) {
  return number * uint64_t(mesh::kMaxRanks) + uint64_t(rank);
}
inline constexpr uint64_t number_of_claim(uint64_t claim) {
  return claim / uint64_t(mesh::kMaxRanks);
}
inline constexpr int holder_of_claim(uint64_t claim) {
  return int(claim % uint64_t(mesh::kMaxRanks));
}

// Data that is written repeatedly to a place with room for more rotates in that room. When it
// returns to an address, the CPUs' own caches have lost the old lines. To write them in the
// last-level cache is faster than in the cache of the peer that has read them. Up to kFew bytes
// stay at their address, in the nearest cache.
inline bool moves(int64_t bytes, int64_t room) {
  constexpr int64_t kFew = 4 << 10;
  return bytes > kFew && bytes <= room / 2;
}
// The offset of the data at its `turn`-th write.
inline int64_t moved_by(uint64_t turn, int64_t bytes, int64_t room) {
  const auto length = int64_t(end_of_line(size_t(bytes)));
  return int64_t(turn % uint64_t(room / length)) * length;
}

// The block of one group: a share per rank, each made of
//   RankControl | Mail to each rank | taken of each rank's ring | taken of each rank's mail to me
//   | pad to a page | ring | mailbox
class GroupBlock {
 public:
  GroupBlock() = default;
  GroupBlock(std::byte* base, int size)
      : base_(base), size_(size), share_bytes_(size_t(mesh::segment_bytes(size))) {}

  static size_t bytes(int size) { return size_t(mesh::segment_bytes(size)) * size_t(size); }

  RankControl& control(int rank) const { return *reinterpret_cast<RankControl*>(share(rank)); }
  CallEntry& call(int rank, uint64_t number) const {
    return control(rank).calls[number % kCallsKept];
  }
  Mail& mail(int from, int to) const {
    return reinterpret_cast<Mail*>(share(from) + sizeof(RankControl))[to];
  }
  // How many slots of `writer`'s ring `reader` has taken.
  Counter& taken(int writer, int reader) const { return counters(reader)[writer]; }
  Counter& mail_taken(int from, int to) const { return counters(to)[size_ + from]; }

  // All slots together: kRingBytes.
  std::byte* ring(int rank) const { return data(rank); }
  // The address of `bytes` in a slot; they may rotate in `room`.
  std::byte* slot(int rank, uint64_t index, int64_t bytes, int64_t room) const {
    std::byte* const place =
        data(rank) + (index % uint64_t(mesh::kRingSlots)) * size_t(mesh::kSlotBytes);
    if (!moves(bytes, room)) return place;
    const uint64_t turn = index / uint64_t(mesh::kRingSlots);
    return place + (turn % 2) * uint64_t(mesh::kRingBytes / 2) + moved_by(turn / 2, bytes, room);
  }
  // Room of one of the kMailChunks places that a directed pair has in the sender's mailbox; a chunk
  // takes half of it.
  static constexpr uint64_t kMailChunks = 2;
  int64_t mail_room() const {
    return mesh::kMailboxBytes / int64_t(kMailChunks) / (size_ - 1) / int64_t(2 * kLineBytes) *
           int64_t(2 * kLineBytes);
  }
  int64_t mail_chunk_bytes() const { return mail_room() / 2; }
  std::byte* mail_chunk(int from, int to, uint64_t index, int64_t bytes) const {
    const size_t peer = size_t((to - from + size_) % size_ - 1);
    std::byte* const place = data(from) + mesh::kRingBytes +
                             (peer * kMailChunks + index % kMailChunks) * size_t(mail_room());
    if (!moves(bytes, mail_room())) return place;
    return place + moved_by(index / kMailChunks, bytes, mail_room());
  }

  std::byte* share(int rank) const { return base_ + size_t(rank) * share_bytes_; }
  size_t share_bytes() const { return share_bytes_; }

 private:
  Counter* counters(int rank) const {
    return reinterpret_cast<Counter*>(share(rank) + sizeof(RankControl) +
                                      size_t(size_) * sizeof(Mail));
  }
  std::byte* data(int rank) const {
    return share(rank) + share_bytes_ - mesh::kRingBytes - mesh::kMailboxBytes;
  }

  std::byte* base_ = nullptr;
  int size_ = 0;
  size_t share_bytes_ = 0;
};

// The first failure of a group or of the whole job; later ones are dropped.
struct alignas(kLineBytes) FailureRecord {
  // kBeingWritten + r: rank r is writing it.
  enum State : uint32_t { kNone, kWritten, kBeingWritten };
  static uint32_t being_written(int rank) { return kBeingWritten + uint32_t(rank); }
  static int writer_of(uint32_t state) { return int(state - kBeingWritten); }
  std::atomic<uint32_t> state;
  int32_t kind, culprit, finder;  // global ranks
  char text[1008];
};
static_assert(sizeof(FailureRecord) == 1024);

// The last call of a rank. For a rank of another host it is a text. For a rank of this host it is
// the parts of a text, since it is written with every call. A reader may see a mixture of two
// calls, never a bad address.
struct LastCall {
  std::atomic<uint64_t> op;  // 1 + CollectiveOp; 0: `text` says everything
  std::atomic<uint64_t> number;
  std::atomic<uint64_t> text[14];  // the text, or the call's label
};

// What a rank shows to all others.
struct alignas(kLineBytes) RankBoard {
  // The threads that a peer wakes after it has raised a counter.
  enum Sleeper : uint32_t { kNobody, kThread, kWaiter };
  std::atomic<uint32_t> sleeper;
  std::atomic<uint32_t> thread_bell;  // futex words
  std::atomic<uint32_t> waiter_bell;
  std::atomic<uint64_t> waits_for;  // bits of the ranks whose counters may wake the sleeper
  // 1 + the global rank that a waiting thread waits for.
  alignas(kLineBytes) std::atomic<int32_t> blocked_on;
  std::atomic<int64_t>
      heartbeat_ns;  // when a waiting thread last checked; a stopped thread does not check
  std::atomic<uint32_t> gone;    // ended in good order
  std::atomic<uint32_t> died;    // died, as a peer of its host saw
  std::atomic<int32_t> process;  // process id; 0: of another host
  std::atomic<int32_t> cpus;     // CPUs that the ranks of its host may use, as it sees it
  std::atomic<uint64_t> pid_namespace;
  LastCall last_call;
};

struct GroupEntry {
  enum State : uint32_t { kFree, kUsed, kSpare };  // spare: its block can be used again
  uint32_t state;
  int32_t size;
  uint64_t key;
  uint64_t offset;
  std::atomic<uint32_t> closes;
};

struct JobHeader {
  uint64_t magic;
  int32_t size;
  int32_t ranks_here;                // those of the job's ranks that are on this host
  std::atomic<uint32_t> table_lock;  // 1 + the rank that holds it
  std::atomic<uint32_t> failures;    // how many records have been written
  int32_t entries;
  uint64_t next_offset;
  GroupEntry groups[mesh::kMaxGroups];
  FailureRecord failure;                           // of the whole job
  FailureRecord group_failures[mesh::kMaxGroups];  // of each group
};
inline constexpr uint64_t kMagic = 0x32304d4d4f435053;  // "SPCOMM02"

}  // namespace smp::segment
