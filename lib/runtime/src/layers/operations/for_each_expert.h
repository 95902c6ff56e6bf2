#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace smp::layers {

// Calls body(expert, first row, rows) for the rank's experts that have rows. `ends`: of each
// expert's rows.
template <typename Body>
void for_each_expert(const at::Tensor& ends, const Body& body) {
  const auto* end = ends.const_data_ptr<int32_t>();
  int64_t first = 0;
  for (int64_t e = 0; e < ends.numel(); ++e) {
    if (end[e] > first) body(e, first, end[e] - first);
    first = end[e];
  }
}

}  // namespace smp::layers
