#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/comm/communicator.h"

namespace smp {

// One line of a benchmark. Sizes follow nccl-tests: `bytes` is the full buffer of a rank, for
// all_gather and gather their output, for reduce_scatter, scatter and all_to_all their input.
struct BenchCase {
  // kSend: to the next ranks, so many as are peers, and from as many before, all at once.
  mesh::CollectiveOp op = mesh::CollectiveOp::kAllReduce;
  DType dtype = DType::kF32;
  comm::ReduceOp reduction = comm::ReduceOp::kSum;
  int64_t bytes = 0;  // of kSend: to each
  int peers = 1;
};

struct BenchOptions {
  bool is_symmetric = true;  // buffers that peers read in place, as the engine's
  bool is_dirty = false;  // inputs are rewritten before every call: nothing is in a cache by luck
  bool is_out_of_place_alone = false;  // where a call can be that
  bool is_checked = true;              // that one more call leaves what it must
  int samples = 7;
  double sample_s = 0.02;  // about so long; at least one call
};

// Seconds of a call: of the slowest rank, the median of the samples.
struct BenchTime {
  double seconds = 0;
  // Elements of one more call, of all ranks, that are not what they must be, if it was made.
  std::optional<int64_t> wrong;
};

// In place is told where a call can be.
struct BenchResult {
  BenchCase measured;
  int64_t count = 0;  // elements of `bytes`, as far as they divide among the ranks
  std::optional<BenchTime> out_of_place, in_place;

  int64_t wrong() const {
    const auto of = [](const std::optional<BenchTime>& time) {
      return time ? time->wrong.value_or(0) : 0;
    };
    return of(out_of_place) + of(in_place);
  }
};

bool has_reduction(mesh::CollectiveOp op);

// What the cases of a benchmark send and receive, one after the other: memory that was touched
// before, as an engine's is.
class BenchBuffers {
 public:
  BenchBuffers(comm::Communicator& comm, bool is_symmetric)
      : comm_(comm), is_symmetric_(is_symmetric) {}

  // Makes them hold at least so many bytes, the same on all ranks. What was there may be gone.
  void hold(int64_t in_bytes, int64_t out_bytes);
  std::byte* in() const { return in_.memory.get(); }
  std::byte* out() const { return out_.memory.get(); }

 private:
  struct Buffer {
    std::shared_ptr<std::byte[]> memory;
    int64_t bytes = 0;
  };
  void hold(Buffer& buffer, int64_t bytes);

  comm::Communicator& comm_;
  const bool is_symmetric_;
  Buffer in_, out_;
};

// Before the first measure(): waits, busy, until the ranks are spread over the CPUs.
void settle(comm::Communicator& comm);

// Of all ranks of the communicator, whose the buffers are; the same result on each.
BenchResult measure(comm::Communicator& comm, const BenchCase& what, const BenchOptions& options,
                    BenchBuffers& buffers);

// Of the case at `at` of all rounds: medians, and all elements that were wrong.
BenchResult median_of(const std::vector<std::vector<BenchResult>>& rounds, size_t at);

// Bytes a second of the full buffer, and what the slowest link must carry of them, as in
// nccl-tests.
double algorithm_bytes_per_s(const BenchResult& result, double seconds);
double bus_factor(mesh::CollectiveOp op, int ranks);

}  // namespace smp
