#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parity/combination.h"

namespace smp::parity {

// What a set of combinations covers: every `strength` values of different factors that may legally
// meet.
struct Covered {
  int strength = 2;
  size_t least = 0;         // so many combinations at least
  bool all_models = false;  // else: no experts, documents and masks, and all gradients are clipped
};

// Combinations on up to 8 ranks in which what may legally meet does meet. Legal is what `smp-plan
// check` passes. Values that met in no legal combination of a bounded search are left out.
// Deterministic. `data_path`: of write_data().
struct CoveringSet {
  std::vector<Combination> combinations;
  int64_t covered = 0;   // so many values as `strength` says meet in one of these
  int64_t illegal = 0;   // ... and so many met nowhere
  int64_t searched = 0;  // of them those that no rule of is_sensible() and no fewer values exclude
  int64_t checks = 0;    // of plans
};
CoveringSet covering_set(const Covered& wanted, const std::string& data_path);

// Whether check() passes it.
bool is_legal(const Combination& combination, const std::string& data_path);

// Trains every combination in fp64 and holds it against one rank and its plan. The checks are
// doctest's.
void compare_covering_set(int64_t steps);

// Trains those of another precision in theirs: fp32 against one rank, 16 bits against one rank of
// fp32 within what rounding explains; all against their plans.
void compare_covering_precisions(int64_t steps);

}  // namespace smp::parity
