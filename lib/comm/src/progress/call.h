#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "segment/layout.h"
#include "smp/comm/communicator.h"

namespace smp::progress {

// The number of pieces of at most b that a is cut into.
inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One call of one rank. Peers compare it with their own calls, and errors name it.
struct Call {
  mesh::CollectiveOp op = mesh::CollectiveOp::kBarrier;
  DType dtype = DType::kU8;
  comm::ReduceOp reduce_op = comm::ReduceOp::kSum;
  int64_t count = 0;
  int peer = -1;  // rank of the group: the root, or the other side of a send or recv; -1: none
  std::string label;
  uint64_t number = 0;  // among the collectives of the group, or the messages of a directed pair
  // Offsets of the buffers in the job's memory if peers can use the buffers in place, else -1.
  // Either both are set or none; an all_gather may have only the input set.
  int64_t in_at = -1, out_at = -1;

  int64_t bytes() const { return count * bytes_of(dtype); }
};

// "all_reduce #12 'data.gradients' of 4096 fp32"; `peer` is the global rank of call.peer.
std::string describe(const Call& call, int peer);

// Store a call for load(), which returns "#12 all_reduce 'data.gradients'". A text that is too long
// is cut.
void store(segment::LastCall& to, const Call& call);
void store(segment::LastCall& to, std::string_view text);
std::string load(const segment::LastCall& from);

// A call between hosts consists of steps, which are calls inside a host. The label of a step is
// this mark and the description of the whole call, which errors name.
inline constexpr char kStepMark = '\x01';
inline bool is_step(const std::string& label) { return !label.empty() && label[0] == kStepMark; }

// The error of two ranks that made different calls. The text names both as "rank 0: all_reduce
// ...", the lower rank first.
comm::CommError mismatch(int culprit, int rank, const std::string& call, int other,
                         const std::string& others_call);

// Equal on ranks whose calls match.
uint64_t fingerprint(const Call& call);

// Writes all but the number; storing the number publishes the entry. `print`: the call's
// fingerprint.
void write(segment::CallEntry& entry, const Call& call, uint64_t print);

// The call in a record: a CallEntry, or the header of a message between hosts.
template <class Record>
Call call_in(const Record& record, uint64_t number) {
  Call call;
  call.op = mesh::CollectiveOp(record.op);
  call.dtype = DType(record.dtype);
  call.reduce_op = comm::ReduceOp(record.reduce_op);
  call.count = record.count;
  call.peer = record.root;
  call.label = record.label;
  call.number = number;
  return call;
}

}  // namespace smp::progress
