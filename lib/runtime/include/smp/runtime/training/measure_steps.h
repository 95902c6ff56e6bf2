#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/runinfo/product_times.h"

// How fast this host's CPUs train: the engine's own steps of small models, on ranks that share the
// CPUs and do not talk. `smp-worker --measure` prints it, smp-bench asks for it, and smp-plan makes
// rates of it.
namespace smp::training {

// Steps of a GPT-2 of one or two blocks with 256 tokens of vocabulary, in fp32.
struct MeasuredSteps {
  int64_t ranks = 0;  // of one thread, that ran at the same time
  int64_t blocks = 0;
  int64_t hidden_size = 0;
  int64_t sequence_length = 0;  // of one sample, which is a microbatch
  double microbatch_s = 0;      // forward and backward
  double update_s = 0;          // the rest of a step: clipping, optimizer
};

struct MeasuredHost {
  std::string instruction_set;  // that torch's kernels use: "AVX512"
  // fp32 products of [512, 1,024] and [1,024, 1,024], of each of as many ranks as CPUs, by the
  // faster library.
  double matmul_flops_per_s = 0;
  // Read and written by sums of two vectors that no cache holds, of each of those ranks.
  double memory_bytes_per_s = 0;
  std::vector<MeasuredSteps> steps;  // whose products are made by the library that a run chooses
  std::vector<runinfo::ProductTimes> products;  // of these steps, by which it was chosen
};

// Takes about 1.5 s. `cpus`: of this process. Throws std::runtime_error if a measurement fails.
MeasuredHost measure_host(int64_t cpus);

// JSON for programs: an object, and one for each product behind it.
std::string measured_json(const MeasuredHost& measured);

}  // namespace smp::training
