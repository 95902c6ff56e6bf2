#pragma once

#include <cstdint>

namespace smp::kernels {

// Elements [begin, begin + count) of a flat tensor.
struct FlatRange {
  int64_t begin = 0;
  int64_t count = 0;
};

}  // namespace smp::kernels
