#pragma once

#include <cstdint>

#include "smp/plan/base/philox.h"

namespace smp::data {

// The order of one epoch of one source: a bijection of [0, size) that is computed, not stored. It
// is a Feistel network over the next power of two, whose halves are changed in turn by Philox
// blocks of (half, round, source, epoch). A result outside [0, size) goes through the network again
// (cycle walking: Black and Rogaway 2002). Immutable; any thread.
class Permutation {
 public:
  // size >= 1.
  Permutation(uint64_t seed, uint32_t source, int64_t epoch, int64_t size);

  int64_t operator()(int64_t place) const;  // place: in [0, size), as the result

 private:
  uint64_t rounds(uint64_t value) const;

  PhiloxKey key_;
  uint32_t source_, epoch_;
  uint64_t size_;
  int high_bits_, low_bits_;
};

}  // namespace smp::data
