#include "cuda/device_runner.h"

#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/mm.h>

#include "new_tensors.h"

namespace smp::cuda {

at::Tensor DeviceRunner::wide_product(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a, b, at::kFloat);
}

bool DeviceRunner::has_flash(const AttentionShape& shape, at::ScalarType type) {
  constexpr int64_t kLargestHead = 256, kHeadMultiple = 8;  // flash_attn's kernels
  return (type == at::kBFloat16 || type == at::kHalf) && shape.dropout.threshold == 0 &&
         shape.relative_buckets == 0 && shape.window == 0 &&
         (!shape.causal || shape.sequence == shape.keys) && shape.head_dim <= kLargestHead &&
         shape.head_dim % kHeadMultiple == 0;
}

std::tuple<at::Tensor, at::Tensor> DeviceRunner::flash_forward(const AttentionShape& shape,
                                                               const at::Tensor& q,
                                                               const at::Tensor& k,
                                                               const at::Tensor& v) {
  const auto result = at::_scaled_dot_product_flash_attention(
      q, k, v, /*dropout_p=*/0, shape.causal, /*return_debug_mask=*/false, shape.scale);
  return {std::get<0>(result), std::get<1>(result)};
}

// Without dropout the state of the generator is not read; without packed sequences neither are
// their lengths.
std::tuple<at::Tensor, at::Tensor, at::Tensor> DeviceRunner::flash_backward(
    const AttentionShape& shape, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& output, const at::Tensor& output_gradient, const at::Tensor& log_sums) {
  const at::Tensor unread = empty_tensor({2}, q.options().dtype(at::ScalarType::UInt64));
  return at::_scaled_dot_product_flash_attention_backward(
      output_gradient, q, k, v, output, log_sums, /*cum_seq_q=*/{}, /*cum_seq_k=*/{},
      shape.sequence, shape.keys, /*dropout_p=*/0, shape.causal, unread, unread, shape.scale);
}

}  // namespace smp::cuda
