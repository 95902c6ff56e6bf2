#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parity/layouts.h"

namespace smp::parity {

// One way to train: what the covering set is drawn from.
struct Combination {
  LayoutCase layout;
  bool llama = false;  // 2 KV heads under up to 4 tensor ranks; else GPT-2
  bool tied = false;
  bool dropout = false;
  Precision precision = Precision::kFp64;

  ModelSpec model() const;
};

// Combinations of degrees, sharding, replicas, schedule, recompute, offload, tying, KV heads
// and dropout on up to 8 ranks in which every two values that may legally meet do meet, and at
// least `least` of them. Legal is what `smp-plan check` passes. Deterministic. `data_path`: text to
// train on.
struct CoveringSet {
  std::vector<Combination> combinations;
  int64_t pairs = 0;  // of values, that meet in some legal combination and in one of these
};
CoveringSet covering_set(size_t least, Precision precision, const std::string& data_path);

// Trains every combination in fp64 and holds it against one rank and its plan. The checks are
// doctest's.
void compare_covering_set(int64_t steps);

}  // namespace smp::parity
