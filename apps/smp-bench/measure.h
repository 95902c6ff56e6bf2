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
  CollectiveOp op = CollectiveOp::kAllReduce;  // kSend: to the next rank, and from the one before
  DType dtype = DType::kF32;
  ReduceOp reduction = ReduceOp::kSum;
  int64_t bytes = 0;
};

struct BenchOptions {
  bool is_symmetric = true;  // buffers that peers read in place, as the engine's
  bool is_dirty = false;  // inputs are rewritten before every call: nothing is in a cache by luck
  int samples = 7;
  double sample_s = 0.02;  // about so long; at least one call
};

// Seconds of a call: of the slowest rank, the median of the samples. In place is told where a call
// can be.
struct BenchResult {
  BenchCase measured;
  int64_t count = 0;  // elements of `bytes`, as far as they divide among the ranks
  std::optional<double> out_of_place_s, in_place_s;
};

bool has_reduction(CollectiveOp op);

// Of all ranks of the communicator; the same result on each.
BenchResult measure(Communicator& comm, const BenchCase& what, const BenchOptions& options);

// Bytes a second of the full buffer, and what the slowest link must carry of them, as in
// nccl-tests.
double algorithm_bytes_per_s(const BenchResult& result, double seconds);
double bus_factor(CollectiveOp op, int ranks);

}  // namespace smp
