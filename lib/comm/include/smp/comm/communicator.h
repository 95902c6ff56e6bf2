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

// A call that could not be completed. `culprit` is the global rank that is to blame, -1 if unknown.
// The text names both sides.
class CommError : public std::runtime_error {
 public:
  enum class Kind { kPeerLost, kTimeout, kMismatch, kAborted };
  CommError(Kind what_kind, int blamed, const std::string& text)
      : std::runtime_error(text), kind(what_kind), culprit(blamed) {}
  Kind kind;
  int culprit;
};

// A call under way, as a handle. The call makes progress even if nobody waits for it. A dropped
// Work lets the call go on. If an exception drops the Work before the call is complete, the call is
// given up and the whole job fails, with this rank as the culprit.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool done() = 0;  // throws CommError if the call has failed
  virtual void wait() = 0;  // throws CommError if the call has failed
};
using WorkPtr = std::shared_ptr<Work>;

// Calls and payload bytes sent to peers, by label, op and group size. A label is the plan's name of
// the traffic, such as "data.gradients".
struct TrafficCount {
  std::string label;
  mesh::CollectiveOp op;
  int group_size;
  int64_t calls = 0;
  int64_t wire_bytes = 0;
};

// A window is memory of each rank of a group that its peers read in place, as in MPI's one-sided
// communication. A rank calls show() after it has written the memory; a gather waits only for ranks
// that have not shown theirs yet. All ranks call show() at the same places of their programs, and
// each counts the calls.
//
// A rank may change memory that it has shown once no peer still reads it. That is so after a later
// call of all ranks which its peers make after their gathers. The same holds for the end of the
// window and of its memory. Thread rule of the window's communicator, which must outlive it.
class PeerWindow {
 public:
  virtual ~PeerWindow() = default;

  virtual void show() = 0;  // lets peers read what this rank has written so far
  // Gathers elements [begin + r * stride, begin + r * stride + count) of each rank r, once rank r
  // has shown its memory `shown` times. out: size() * count elements, in rank order. This rank's
  // part may already lie at its place in out. Counts as an all_gather in traffic().
  virtual WorkPtr gather(int64_t begin, int64_t stride, int64_t count, int64_t shown, void* out,
                         std::string_view label) = 0;
};

class Communicator;

// A new job made of the ranks that are left of a failed one.
struct Survivors {
  std::unique_ptr<Communicator> world;
  std::vector<int> former;  // by rank of `world`: its rank in the old job
};

// A Communicator moves bytes within a group of ranks. All calls are asynchronous: buffers must live
// until the Work is done, or is dropped by an exception. Counts are in elements. Calls on one
// Communicator come from one thread; different groups may be used from different threads, and
// abort() from any.
//
// Every rank of the group makes the same calls with the same labels in the same order. For send and
// recv, each pair of ranks has an order of its own. A rank that makes another call ends every
// waiting call with a CommError that names both sides. So does a rank that dies, leaves too early
// or does not call in time. All groups of the job then fail.
//
// abort() ends one group and the groups that were split off it. If the network does not release the
// buffers of messages under way within 0.5 s, abort() ends the job. A rank whose communicator is
// destroyed by an exception has not left: its peers wait, within the time-out, until it says why
// (abort()) or ends. They also stop waiting when it loses the communicator of all ranks, which
// fails the job.
//
// A process that a rank forks is no member of the rank's groups. Calls in the child throw
// CommError. Objects that the child destroys, or keeps until its program ends, stay in use in the
// parent.
//
// Reductions run in rank order, so they are bitwise equal on all ranks and in all runs. bf16 and
// fp16 are added in fp32 and rounded once. An average is the sum divided by size(), toward zero for
// integers. Integer sums and products wrap around.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // in this group
  virtual int size() const = 0;
  virtual int global_rank(int rank) const = 0;  // of a member of this group

  // `label` names the traffic in counters and errors. Buffers hold `count` elements unless a call
  // says otherwise. in == out is allowed where the sizes agree.
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

  // Tells the job that this rank computes on a device. Its long calls, in all groups of the job,
  // may then use the CPUs of its share of the host. SMP_COMM_THREADS sets the number of threads
  // instead.
  virtual void lend_cpus() {}

  // Opens a window to `count` consecutive elements of each rank's memory. All ranks call it; it is
  // complete when it returns. Null on all ranks if some rank's memory is not from
  // allocate_symmetric(), or if no memory can be read in place; use all_gather instead.
  virtual std::unique_ptr<PeerWindow> open_window(const void* memory, int64_t count, DType dtype,
                                                  std::string_view label);

  // Makes a group of some of this group's ranks. `members` are ranks of this group, in the order of
  // the new group. Only the *members* call it; the same set may be split off several times.
  virtual std::unique_ptr<Communicator> split(const std::vector<int>& members) = 0;

  // Sets how long calls made from now on may take, in this group and in groups split off later. The
  // default is the job's time-out. The ranks may have different time-outs.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  // Ends every waiting and later call of this group, here and at the peers, with kAborted. Does
  // nothing if the group has failed already: the first failure is the cause.
  virtual void abort(const std::string& reason) = 0;

  // The failure that has ended this group, as its next call would throw it; nothing if none is
  // known. Any thread.
  virtual std::optional<CommError> error() const { return std::nullopt; }

  // After a failure, makes a job of the ranks that are left, in the same processes. All of them
  // call it, on any communicator of the job. That job should then be destroyed with all its groups.
  // The ranks keep their order. Ranks whose process has ended are not waited for. A rank that does
  // not call within `limit` is left out, as long as more than half do. Throws CommError if fewer
  // call or a rank dies meanwhile, and std::logic_error for ranks that are threads of one process.
  virtual Survivors shrink(std::chrono::milliseconds limit);

  // The last calls of this rank, in all groups of the job; may outlive them. Any thread. Null if
  // calls are only recorded.
  virtual std::shared_ptr<const CallLog> call_log() const { return nullptr; }

  virtual std::vector<TrafficCount> traffic() const = 0;  // of this group, sorted by label and op
  // This rank's shared memory: smp::segment_bytes(size()).
  virtual int64_t segment_bytes() const = 0;

  // Allocates symmetric memory: zeroed memory that the other ranks of this host read and write in
  // place. An all_reduce, reduce_scatter (in and out) or all_gather (in, better also out) of more
  // than kOneShotBytes is zero-copy if these buffers are symmetric memory on every rank of the
  // group. Otherwise the call is staged: it copies through shared memory. Not collective; the
  // memory is good for every communicator of the job. It may outlive them, and must outlive the
  // calls that use it. Throws std::bad_alloc or std::system_error without memory,
  // std::runtime_error if a network refuses to register it.
  virtual std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) = 0;
};

}  // namespace smp::comm
