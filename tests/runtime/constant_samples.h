#pragma once

#include <algorithm>
#include <cstdint>

#include "smp/runtime/engine/engine.h"

namespace smp {

// A reader whose tokens are all 1 and targets all 2.
inline engine::ReadSamples constant_samples(int64_t sequence_length) {
  return [=](int64_t, int64_t, int64_t count, const engine::SampleBuffers& out) {
    int64_t value = 1;
    for (const model::BatchField field :
         {model::BatchField::kTokens, model::BatchField::kTargets}) {
      if (out.integers(field) != nullptr) {
        std::fill_n(out.integers(field), count * sequence_length, value);
      }
      ++value;
    }
  };
}

}  // namespace smp
