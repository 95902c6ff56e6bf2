#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/collective.h"
#include "smp/plan/dtype.h"

namespace smp {

class CallLog;

enum class ReduceOp { kSum, kMax, kMin, kProduct, kAverage };
std::string_view name_of(ReduceOp op);

// A collective that could not be completed. `culprit` is the global rank that is to blame (-1 when
// unknown); the text names both sides.
class CommError : public std::runtime_error {
 public:
  enum class Kind { kPeerLost, kTimeout, kMismatch, kAborted };
  CommError(Kind what_kind, int blamed, const std::string& text)
      : std::runtime_error(text), kind(what_kind), culprit(blamed) {}
  Kind kind;
  int culprit;
};

// A collective under way. Progress does not depend on anybody waiting. One that is dropped
// unfinished goes on; dropped by an exception it is given up, and the whole job fails with this
// rank to blame.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool done() = 0;  // throws CommError when the collective failed
  virtual void wait() = 0;  // throws CommError when the collective failed
};
using WorkPtr = std::shared_ptr<Work>;

// Calls and payload bytes sent to peers, per label (a label is what the plan calls the traffic,
// e.g. "data.gradients"), op and group size.
struct TrafficCount {
  std::string label;
  CollectiveOp op;
  int group_size;
  int64_t calls = 0;
  int64_t wire_bytes = 0;
};

// Memory of each rank of a group that its peers copy from when they come by: nobody waits for a
// rank that has shown what is wanted. Each rank counts how often it has shown its memory, and all
// must do so at the same places of their programs. What a rank has shown it changes again only once
// it knows that no peer reads it any more: by a later call of all that its peers make after their
// gathers. The same holds for the end of the window and of its memory. Thread rule of its
// communicator, which must outlive it.
class PeerWindow {
 public:
  virtual ~PeerWindow() = default;

  virtual void show() = 0;  // what this rank has written to its memory so far
  // Element [begin + r * stride, ... + count) of each rank r, in rank order, from whoever has shown
  // its memory `shown` times. Its own part may lie in its place in out. Counts as an all_gather.
  virtual WorkPtr gather(int64_t begin, int64_t stride, int64_t count, int64_t shown, void* out,
                         std::string_view label) = 0;
};

class Communicator;

// The ranks that are left of a job, as a job of its own.
struct Survivors {
  std::unique_ptr<Communicator> world;
  std::vector<int> former;  // by rank of `world`: its rank in the old job
};

// A Communicator moves bytes within a group of ranks. All calls are asynchronous: buffers must live
// until the Work is done, or is dropped by an exception. Every rank of the group makes the same
// calls with the same labels in the same order (send and recv: each pair of ranks in its own
// order); a rank that does otherwise ends every waiting call with a CommError that names both
// sides. So does a rank that dies, leaves too early or does not call in time; the whole job's
// groups then fail, while abort() ends one group and those split off it (and the job where a
// network does not give back within 0.5 s the memory of what was half sent or received). A rank
// whose communicator is destroyed by an exception has not left: its peers wait, within the
// time-out, until it says why (abort()), ends, or loses the communicator of all ranks too, which
// fails the job. Calls on one Communicator come from one thread; different groups may be used from
// different threads, and abort() from any. Counts are in elements.
//
// A process that a rank forks has no part in its groups: calls are CommErrors there, and what it
// destroys, or leaves to the end of the program, goes on in its parent.
//
// Reductions run in rank order, so they are bitwise equal on all ranks and in all runs; bf16 and
// fp16 are widened to fp32 and rounded once. An average is the sum divided by size(), toward zero
// for integers; integer sums and products wrap around.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // in this group
  virtual int size() const = 0;
  virtual int global_rank(int rank) const = 0;  // of a member of this group

  // `label` names the traffic in counters and errors. in == out is allowed where the sizes agree.
  virtual WorkPtr all_reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                             std::string_view label) = 0;
  // in: `count` elements; out: size() * count, in rank order. in may lie in its place in out.
  virtual WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                             std::string_view label) = 0;
  // in: `count` elements, a multiple of size(); out: count / size(). out may lie in its place in
  // in.
  virtual WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                                 std::string_view label) = 0;
  virtual WorkPtr broadcast(void* buffer, int64_t count, DType dtype, int root,
                            std::string_view label) = 0;
  // out: of the root alone; null elsewhere.
  virtual WorkPtr reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                         int root, std::string_view label) = 0;
  // in: `count` elements; out, of the root alone: size() * count, in rank order. in may lie in its
  // place in out.
  virtual WorkPtr gather(const void* in, void* out, int64_t count, DType dtype, int root,
                         std::string_view label) = 0;
  // in, of the root alone: size() * count elements, in rank order; out: count. out may lie in its
  // place in in.
  virtual WorkPtr scatter(const void* in, void* out, int64_t count, DType dtype, int root,
                          std::string_view label) = 0;
  // in: `count` elements for each rank, out: those of each rank for this one, both in rank order
  // and apart from each other. Parts that are not equally long: send and recv.
  virtual WorkPtr all_to_all(const void* in, void* out, int64_t count, DType dtype,
                             std::string_view label) = 0;
  virtual WorkPtr send(const void* in, int64_t count, DType dtype, int peer,
                       std::string_view label) = 0;
  virtual WorkPtr recv(void* out, int64_t count, DType dtype, int peer, std::string_view label) = 0;
  virtual WorkPtr barrier(std::string_view label) = 0;

  // This rank computes elsewhere, on a device: of its share of its host's CPUs those that it does
  // not need help with its long calls, in all groups of the job (SMP_COMM_THREADS: how many).
  virtual void lend_cpus() {}

  // Opens a window to `count` elements of memory of each rank, one after the other: a call of all,
  // complete when it returns. Null, on all ranks, where that of some is not from
  // allocate_symmetric(), or memory cannot be read in place at all: all_gather does the same.
  virtual std::unique_ptr<PeerWindow> open_window(const void* memory, int64_t count, DType dtype,
                                                  std::string_view label);

  // A group of some of this group's ranks (given as ranks of this group, in the order they shall
  // have). Collective over the *members* only; the same set may be split off several times.
  virtual std::unique_ptr<Communicator> split(const std::vector<int>& members) = 0;

  // How long the calls made from now on may take, in this group and those split off later; that of
  // the job until then. It need not be the same on all ranks.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  // Ends every waiting and later call of this group, here and at the peers, with kAborted. Does
  // nothing when the group has failed already: what came first is the cause.
  virtual void abort(const std::string& reason) = 0;

  // What has ended this group, as its next call would say; nothing while it works, as far as
  // anybody has looked. Any thread.
  virtual std::optional<CommError> error() const { return std::nullopt; }

  // After a failure the ranks that are left go on in the same processes: a call of all of them, of
  // any communicator of the job, which should then be destroyed with all its groups. They keep
  // their order. Ranks whose process has ended are not waited for; one that does not come within
  // `limit` is left out, as long as more than half come. Throws CommError when less do, or when a
  // rank dies meanwhile; std::logic_error for ranks that are threads of one process.
  virtual Survivors shrink(std::chrono::milliseconds limit);

  // The last calls of this rank, in all groups of the job; may outlive them. Any thread. Null where
  // nothing runs.
  virtual std::shared_ptr<const CallLog> call_log() const { return nullptr; }

  virtual std::vector<TrafficCount> traffic() const = 0;  // of this group, sorted by label, op
  virtual int64_t segment_bytes() const = 0;  // this rank's share: smp::segment_bytes(size())

  // Memory, zeroed, that the other ranks of this host can read and write in place. all_reduce (in
  // and out), reduce_scatter (in and out) and all_gather (in, better out as well) of more than
  // kOneShotBytes copy nothing through the segment when these buffers come from here on every rank
  // of the group; with the buffers of some ranks only, or of other memory, they work as ever. Not
  // collective, and good for every communicator of the job. May outlive them; must outlive the
  // calls that use it. Throws std::bad_alloc or std::system_error without memory,
  // std::runtime_error if a network refuses it.
  virtual std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) = 0;
};

}  // namespace smp
