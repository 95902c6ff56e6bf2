#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "layout.h"
#include "smp/comm/communicator.h"

namespace smp::shm {

// Into how many pieces of at most b it falls.
inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One call of one rank, as it is compared with the peers' and named in errors.
struct Call {
  CollectiveOp op = CollectiveOp::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp reduce_op = ReduceOp::kSum;
  int64_t count = 0;
  int peer = -1;  // the root; of send and recv the other rank (of the group)
  std::string label;
  uint64_t number = 0;  // among the collectives of the group, or the messages of a directed pair
  // Where the buffers that peers would read and write lie in the job's memory, if they do: both or
  // none, but of an all_gather perhaps its input alone.
  int64_t in_at = -1, out_at = -1;

  int64_t bytes() const { return count * bytes_of(dtype); }
};

// "all_reduce #12 'data.gradients' of 4096 fp32"; `peer` is the global rank of call.peer.
std::string describe(const Call& call, int peer);

// "#12 all_reduce 'data.gradients'" to who reads it, as far as there is room.
void store(LastCall& to, const Call& call);
void store(LastCall& to, std::string_view text);
std::string load(const LastCall& from);

// A call between hosts is made of steps, which are calls inside a host. A label that begins with
// this mark is the description of the whole, which is what errors shall speak of.
inline constexpr char kStepMark = '\x01';
inline bool is_step(const std::string& label) { return !label.empty() && label[0] == kStepMark; }

// Says what two ranks have called, each as "rank 0: all_reduce ...", the lower rank first.
CommError mismatch(int culprit, int rank, const std::string& call, int other,
                   const std::string& others_call);

// Equal on ranks whose calls belong together.
uint64_t fingerprint(const Call& call);

// Without the number, which publishes it. `print`: its fingerprint.
void write(CallEntry& entry, const Call& call, uint64_t print);

// What a record of a call says of it: a CallEntry, or what a message between hosts begins with.
template <class Record>
Call call_in(const Record& record, uint64_t number) {
  Call call;
  call.op = CollectiveOp(record.op);
  call.dtype = DType(record.dtype);
  call.reduce_op = ReduceOp(record.reduce_op);
  call.count = record.count;
  call.peer = record.root;
  call.label = record.label;
  call.number = number;
  return call;
}

}  // namespace smp::shm
