#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace smp::layers {

// Calls body(expert, first row, rows) for the rank's experts that have rows. `ends`: of each
// expert's rows; on the host, unless activations were offloaded and fetched again.
template <typename Body>
void for_each_expert(const at::Tensor& ends, const Body& body) {
  const at::Tensor on_host = ends.to(at::kCPU);
  const auto* end = on_host.const_data_ptr<int32_t>();
  int64_t first = 0;
  for (int64_t e = 0; e < ends.numel(); ++e) {
    if (end[e] > first) body(e, first, end[e] - first);
    first = end[e];
  }
}

// The rows of all of them.
inline int64_t used_rows(const at::Tensor& ends) {
  return ends.select(0, ends.numel() - 1).item().toInt();
}

}  // namespace smp::layers
