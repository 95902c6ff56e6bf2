#pragma once

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <tuple>

#include "cuda/gpu_functions.h"
#include "cuda/launches_of.h"
#include "host_block.h"

// The functions of a GPU on CPU tensors: kernels' bodies on host threads, and torch's CPU forms of
// what it has for GPUs.
namespace smp::test {

class HostRunner {
 public:
  using Block = HostBlock;
  static constexpr int64_t kThreadsOfBlock = 256;

  // Launches have at most `blocks` blocks, each of `threads`.
  HostRunner(int64_t blocks, int64_t threads, bool flash)
      : blocks_(blocks), threads_(threads), flash_(flash) {}

  template <typename Body>
  void run(int64_t blocks, const Body& body) const {
    launch_on_host(std::min(blocks, blocks_), threads_, body);
  }

  at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b) const {
    return at::mm(a.to(at::kFloat), b.to(at::kFloat));
  }

  bool has_flash(const AttentionShape& shape, at::ScalarType /*type*/) const {
    return flash_ && shape.relative_buckets == 0 && shape.window == 0 &&
           shape.dropout.threshold == 0;
  }
  // The CPU's wants as many key/value heads as others.
  std::tuple<at::Tensor, at::Tensor> flash_forward(const AttentionShape& shape, const at::Tensor& q,
                                                   const at::Tensor& k, const at::Tensor& v) const {
    const int64_t group = shape.heads / shape.kv_heads;
    return at::_scaled_dot_product_flash_attention_for_cpu(q, k.repeat_interleave(group, 1),
                                                           v.repeat_interleave(group, 1), 0,
                                                           shape.causal, {}, shape.scale);
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
      const AttentionShape& shape, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
      const at::Tensor& output, const at::Tensor& output_gradient,
      const at::Tensor& log_sums) const {
    const int64_t group = shape.heads / shape.kv_heads;
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        output_gradient, q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), output,
        log_sums, 0, shape.causal, {}, shape.scale);
    const auto sum_of_group = [&](const at::Tensor& x) {
      return x.unflatten(1, {shape.kv_heads, group}).sum(2);
    };
    return {dq, sum_of_group(dk), sum_of_group(dv)};
  }

 private:
  int64_t blocks_, threads_;
  bool flash_;
};

using HostFunctions = cuda::GpuFunctions<HostRunner>;

// While it lives, all CPU tensors are computed with by `functions`.
class FunctionsScope {
 public:
  explicit FunctionsScope(const DeviceFunctions& functions) {
    set_functions(c10::DeviceType::CPU, &functions);
  }
  ~FunctionsScope() { set_functions(c10::DeviceType::CPU, nullptr); }
  FunctionsScope(const FunctionsScope&) = delete;
  FunctionsScope& operator=(const FunctionsScope&) = delete;
};

}  // namespace smp::test

// Compiled in host_runner.cpp: it costs each file that runs it ten seconds.
extern template class smp::cuda::GpuFunctions<smp::test::HostRunner>;
