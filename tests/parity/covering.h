#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parity/layouts.h"

namespace smp::parity {

// Llama's has 2 KV heads under up to 4 tensor ranks, T5's an encoder and a decoder.
enum class Family { kGpt2, kLlama, kT5 };

// One way to train: what the covering set is drawn from.
struct Combination {
  LayoutCase layout;
  Family family = Family::kGpt2;
  bool tied = false;
  bool dropout = false;
  Precision precision = Precision::kFp64;

  ModelSpec model() const;
};

// Combinations of degrees, sharding, replicas, schedule, recompute, offload, family, tying,
// dropout and precision on up to 8 ranks in which every two values that may legally meet do meet,
// and at least `least` of them. Legal is what `smp-plan check` passes. Deterministic. `data_path`:
// text to train on.
struct CoveringSet {
  std::vector<Combination> combinations;
  int64_t pairs = 0;  // of values, that meet in some legal combination and in one of these
};
CoveringSet covering_set(size_t least, const std::string& data_path);

// Trains every combination in fp64 and holds it against one rank and its plan. The checks are
// doctest's.
void compare_covering_set(int64_t steps);

// Trains those of another precision in theirs: fp32 against one rank, 16 bits against one rank of
// fp32 within what rounding explains; all against their plans.
void compare_covering_precisions(int64_t steps);

}  // namespace smp::parity
