#include "host_runner.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

namespace smp::test {

// The CPU's wants as many key/value heads as others.
std::tuple<at::Tensor, at::Tensor> HostRunner::flash_forward(const AttentionShape& shape,
                                                             const at::Tensor& q,
                                                             const at::Tensor& k,
                                                             const at::Tensor& v) const {
  const int64_t group = shape.heads / shape.kv_heads;
  return at::_scaled_dot_product_flash_attention_for_cpu(q, k.repeat_interleave(group, 1),
                                                         v.repeat_interleave(group, 1), 0,
                                                         shape.causal, {}, shape.scale);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> HostRunner::flash_backward(
    const AttentionShape& shape, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& output, const at::Tensor& output_gradient, const at::Tensor& log_sums) const {
  const int64_t group = shape.heads / shape.kv_heads;
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      output_gradient, q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), output,
      log_sums, 0, shape.causal, {}, shape.scale);
  const auto sum_of_group = [&](const at::Tensor& x) {
    return x.unflatten(1, {shape.kv_heads, group}).sum(2);
  };
  return {dq, sum_of_group(dk), sum_of_group(dv)};
}

}  // namespace smp::test

template class smp::cuda::GpuFunctions<smp::test::HostRunner>;
