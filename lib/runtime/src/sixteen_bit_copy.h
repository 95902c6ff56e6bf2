#pragma once

#include "sixteen_bits.h"
#include "update_range.h"

namespace smp {

// Calls body(put), where put(i, w) stores weight i's 16-bit copy as the range wants it, if at all:
// one loop for each way, without a branch inside.
template <typename Body>
[[gnu::always_inline]] inline void with_copy(const UpdateRange<float>& range, const Body& body) {
  uint16_t* __restrict copy = range.copy;
  if (copy == nullptr) {
    body([](int64_t, float) {});
  } else if (range.copy_dtype == DType::kBF16) {
    body([copy](int64_t i, float w) { copy[i] = bf16_bits(w); });
  } else {
    body([copy](int64_t i, float w) { copy[i] = fp16_bits(w); });
  }
}

}  // namespace smp
