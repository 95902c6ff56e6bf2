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

#include "smp/plan/base/dtype.h"
#include "smp/plan/mesh/collective.h"

namespace smp::comm {

class CallLog;

enum class ReduceOp { kSum, kMax, kMin, kProduct, kAverage };
std::string_view name_of(ReduceOp op);

// A call that could not be completed. `culprit` is the global rank that is to blame (-1 if
// unknown); the text names both sides.
class CommError : public std::runtime_error {
 public:
  enum class Kind { kPeerLost, kTimeout, kMismatch, kAborted };
  CommError(Kind what_kind, int blamed, const std::string& text)
      : std::runtime_error(text), kind(what_kind), culprit(blamed) {}
  Kind kind;
  int culprit;
};

// A call under way. It makes progress even if nobody waits. If the Work is dropped before the call
// is complete, the call goes on; but if an exception drops it, the call is given up and the whole
// job fails, with this rank as the culprit.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool done() = 0;  // throws CommError if the call has failed
  virtual void wait() = 0;  // throws CommError if the call has failed
};
using WorkPtr = std::shared_ptr<Work>;

// Calls and payload bytes sent to peers, by label (what the plan calls the traffic, such as
// "data.gradients"), op and group size.
struct TrafficCount {
  std::string label;
  mesh::CollectiveOp op;
  int group_size;
  int64_t calls = 0;
  int64_t wire_bytes = 0;
};

// Memory of each rank of a group that its peers read in place. A rank shows what it has written; a
// gather waits only for the ranks that have not shown their memory yet. All ranks show it at the
// same places of their programs, and each counts how often. A rank may change what it has shown
// only once it knows that no peer still reads it: after a later call of all ranks that its peers
// make after their gathers. The same holds for the end of the window and of its memory. Thread rule
// of its communicator, which must outlive it.
class PeerWindow {
 public:
  virtual ~PeerWindow() = default;

  virtual void show() = 0;  // lets peers read what this rank has written so far
  // Elements [begin + r * stride, begin + r * stride + count) of each rank r, once it has shown its
  // memory `shown` times; out: size() * count, in rank order. This rank's part may lie in its place
  // in out. Counts as an all_gather.
  virtual WorkPtr gather(int64_t begin, int64_t stride, int64_t count, int64_t shown, void* out,
                         std::string_view label) = 0;
};

class Communicator;

// The ranks that are left of a job, as a new job.
struct Survivors {
  std::unique_ptr<Communicator> world;
  std::vector<int> former;  // by rank of `world`: its rank in the old job
};

// A Communicator moves bytes within a group of ranks. All calls are asynchronous: buffers must live
// until the Work is done, or is dropped by an exception. Counts are in elements. Calls on one
// Communicator come from one thread; different groups may be used from different threads, and
// abort() from any.
//
// Every rank of the group makes the same calls with the same labels in the same order (send and
// recv: each pair of ranks in its own order). A rank that makes another call ends every waiting
// call with a CommError that names both sides. So does a rank that dies, leaves too early or does
// not call in time. All groups of the job then fail. abort() ends one group and those split off it;
// where a network does not give back the memory of half-sent or half-received messages within 0.5
// s, it ends the job. A rank whose communicator is destroyed by an exception has not left: its
// peers wait, within the time-out, until it says why (abort()), ends, or loses the communicator of
// all ranks too, which fails the job.
//
// A process that a rank forks has no part in its groups: calls there throw CommError, and what it
// destroys, or leaves to the end of the program, goes on in its parent.
//
// Reductions run in rank order, so they are bitwise equal on all ranks and in all runs; bf16 and
// fp16 are added in fp32 and rounded once. An average is the sum divided by size(), toward zero for
// integers; integer sums and products wrap around.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // in this group
  virtual int size() const = 0;
  virtual int global_rank(int rank) const = 0;  // of a member of this group

  // `label` names the traffic in counters and errors. Buffers hold `count` elements if nothing else
  // is said. in == out is allowed where the sizes agree.
  virtual WorkPtr all_reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                             std::string_view label) = 0;
  // in: `count` elements; out: size() * count, in rank order. in may be its own part of out.
  virtual WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                             std::string_view label) = 0;
  // in: `count` elements, a multiple of size(); out: count / size(). out may be its own part of in.
  virtual WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                                 std::string_view label) = 0;
  virtual WorkPtr broadcast(void* buffer, int64_t count, DType dtype, int root,
                            std::string_view label) = 0;
  // out: only at the root; null elsewhere.
  virtual WorkPtr reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                         int root, std::string_view label) = 0;
  // in: `count` elements; out, only at the root: size() * count, in rank order. There in may be its
  // own part of out.
  virtual WorkPtr gather(const void* in, void* out, int64_t count, DType dtype, int root,
                         std::string_view label) = 0;
  // in, only at the root: size() * count elements, in rank order; out: count. There out may be its
  // own part of in.
  virtual WorkPtr scatter(const void* in, void* out, int64_t count, DType dtype, int root,
                          std::string_view label) = 0;
  // in: `count` elements for each rank; out: `count` from each rank; both in rank order, and they
  // must not overlap. For parts of different lengths use send and recv.
  virtual WorkPtr all_to_all(const void* in, void* out, int64_t count, DType dtype,
                             std::string_view label) = 0;
  virtual WorkPtr send(const void* in, int64_t count, DType dtype, int peer,
                       std::string_view label) = 0;
  virtual WorkPtr recv(void* out, int64_t count, DType dtype, int peer, std::string_view label) = 0;
  virtual WorkPtr barrier(std::string_view label) = 0;

  // Says that this rank computes on a device: its long calls, in all groups of the job, may use the
  // CPUs of its share of the host (SMP_COMM_THREADS: how many threads).
  virtual void lend_cpus() {}

  // Opens a window to `count` consecutive elements of each rank's memory. A call of all ranks,
  // complete when it returns. Null on all ranks if some rank's memory is not from
  // allocate_symmetric(), or if no memory can be read in place; use all_gather instead.
  virtual std::unique_ptr<PeerWindow> open_window(const void* memory, int64_t count, DType dtype,
                                                  std::string_view label);

  // A group of some of this group's ranks (given as ranks of this group, in the order that they
  // shall have). Only the *members* call it; the same set may be split off several times.
  virtual std::unique_ptr<Communicator> split(const std::vector<int>& members) = 0;

  // How long calls made from now on may take, in this group and those split off later; until then
  // the job's time-out. It need not be the same on all ranks.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  // Ends every waiting and later call of this group, here and at the peers, with kAborted. Does
  // nothing if the group has failed already: the first failure is the cause.
  virtual void abort(const std::string& reason) = 0;

  // What has ended this group, as its next call would say; nothing if that is not known. Any
  // thread.
  virtual std::optional<CommError> error() const { return std::nullopt; }

  // After a failure, lets the ranks that are left go on in the same processes. All of them call it,
  // on any communicator of the job; that job should then be destroyed with all its groups. They
  // keep their order. Ranks whose process has ended are not waited for; one that does not come
  // within `limit` is left out, as long as more than half come. Throws CommError if fewer come or a
  // rank dies meanwhile; std::logic_error for ranks that are threads of one process.
  virtual Survivors shrink(std::chrono::milliseconds limit);

  // The last calls of this rank, in all groups of the job; may outlive them. Any thread. Null if
  // calls are only recorded.
  virtual std::shared_ptr<const CallLog> call_log() const { return nullptr; }

  virtual std::vector<TrafficCount> traffic() const = 0;  // of this group, sorted by label and op
  // This rank's shared memory: smp::segment_bytes(size()).
  virtual int64_t segment_bytes() const = 0;

  // Zeroed memory that the other ranks of this host can read and write in place. An all_reduce (in
  // and out), reduce_scatter (in and out) or all_gather (in, better also out) of more than
  // kOneShotBytes is zero-copy if these buffers come from here on every rank of the group, else it
  // is staged. Not collective; the memory is good for every communicator of the job. It may outlive
  // them, and must outlive the calls that use it. Throws std::bad_alloc or std::system_error
  // without memory, std::runtime_error if a network refuses it.
  virtual std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) = 0;
};

}  // namespace smp::comm
