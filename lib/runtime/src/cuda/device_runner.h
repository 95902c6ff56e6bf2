#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "kernels/attention.h"

namespace smp::cuda {

class DeviceBlock;

// Launches kernels on the thread's current stream (launches.h), and calls torch's functions that
// exist only for GPUs. Safe from any thread.
class DeviceRunner {
 public:
  using Block = DeviceBlock;
  static constexpr int64_t kThreadsOfBlock = 256;

  template <typename Body>
  void run(int64_t blocks, const Body& body) const;  // device_launches.cu
  template <typename Body>
  void run_warps(int64_t warps, const Body& body) const;

  // The matrix product a b of 16-bit factors, accumulated and returned in fp32.
  static at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b);

  // Whether torch's flash attention can be used: 16-bit elements, no window, a supported head size,
  // and no dropout, because torch's generator would drop other elements than ours.
  static bool has_flash(const kernels::AttentionShape& shape, at::ScalarType type);
  // q [b, heads, s, d], k and v [b, kv_heads, s, d] -> output [b, heads, s, d] and log_sums [b,
  // heads, s]. flash_backward() returns the gradients of q, k and v.
  static std::tuple<at::Tensor, at::Tensor> flash_forward(const kernels::AttentionShape& shape,
                                                          const at::Tensor& q, const at::Tensor& k,
                                                          const at::Tensor& v);
  static std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
      const kernels::AttentionShape& shape, const at::Tensor& q, const at::Tensor& k,
      const at::Tensor& v, const at::Tensor& output, const at::Tensor& output_gradient,
      const at::Tensor& log_sums);
};

}  // namespace smp::cuda
