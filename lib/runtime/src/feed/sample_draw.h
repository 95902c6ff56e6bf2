#pragma once

#include <cstdint>

#include "smp/plan/base/philox.h"

namespace smp::feed {

// The random number that selects the data of sample `sample` of a step's global batch. A function
// of seed, step and sample only, so all layouts see the same batch.
inline uint64_t draw_sample(uint64_t seed, int64_t step, int64_t sample) {
  const auto s = static_cast<uint64_t>(step);
  const auto i = static_cast<uint64_t>(sample);
  const PhiloxBlock block =
      philox_rounds({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32),
                     static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32)},
                    stream_key(seed, "data"));
  return uint64_t{block[1]} << 32 | block[0];
}

}  // namespace smp::feed
