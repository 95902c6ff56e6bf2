#include "cuda/device_runner.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "kernels/document_offsets.h"
#include "ledger/tensor_factories.h"

namespace smp::cuda {
namespace {

// The documents of a call, in the form of torch's flash attention for packed sequences.
struct PackedDocuments {
  at::Tensor begins;  // int32, on the device
  // At least 2: if every sequence has one token, torch swaps the axes of heads and queries, also in
  // log_sums.
  int64_t longest = 0;

  PackedDocuments(const kernels::AttentionShape& shape, at::Device device) {
    const kernels::DocumentOffsets places = kernels::document_offsets(shape);
    const auto count = static_cast<int64_t>(places.begins.size());
    at::Tensor on_host = ledger::empty_tensor({count}, at::TensorOptions().dtype(at::kInt));
    std::copy_n(places.begins.data(), count, on_host.mutable_data_ptr<int32_t>());
    begins = on_host.to(device);
    longest = std::max<int64_t>(2, places.longest);
  }
};

// A view of [b, heads, s, d] as tokens [b * s, heads, d], and back.
at::Tensor tokens_of(const at::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0) * heads.size(2), heads.size(1), -1});
}
at::Tensor heads_of(const kernels::AttentionShape& shape, const at::Tensor& tokens) {
  return tokens.view({shape.batch, shape.sequence, tokens.size(1), tokens.size(2)}).transpose(1, 2);
}

}  // namespace

at::Tensor DeviceRunner::wide_product(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a, b, at::kFloat);
}

bool DeviceRunner::has_flash(const kernels::AttentionShape& shape, at::ScalarType type) {
  constexpr int64_t kLargestHead = 256, kHeadMultiple = 8;  // flash_attn's kernels
  return (type == at::kBFloat16 || type == at::kHalf) && shape.dropout.threshold == 0 &&
         shape.relative_buckets == 0 && shape.window == 0 &&
         (!shape.causal || shape.sequence == shape.keys) && shape.head_dim <= kLargestHead &&
         shape.head_dim % kHeadMultiple == 0;
}

std::tuple<at::Tensor, at::Tensor> DeviceRunner::flash_forward(const kernels::AttentionShape& shape,
                                                               const at::Tensor& q,
                                                               const at::Tensor& k,
                                                               const at::Tensor& v) {
  if (shape.documents != nullptr) {
    const PackedDocuments documents(shape, q.device());
    const auto result = at::_flash_attention_forward(
        tokens_of(q), tokens_of(k), tokens_of(v), documents.begins, documents.begins,
        documents.longest, documents.longest, /*dropout_p=*/0, shape.causal,
        /*return_debug_mask=*/false, shape.scale);
    // torch's log_sums are [heads, b * s].
    return {heads_of(shape, std::get<0>(result)),
            std::get<1>(result).view({shape.heads, shape.batch, shape.sequence}).transpose(0, 1)};
  }
  const auto result = at::_scaled_dot_product_flash_attention(
      q, k, v, /*dropout_p=*/0, shape.causal, /*return_debug_mask=*/false, shape.scale);
  return {std::get<0>(result), std::get<1>(result)};
}

// Without dropout torch does not read the generator's state. Without packed sequences torch does
// not read their lengths.
std::tuple<at::Tensor, at::Tensor, at::Tensor> DeviceRunner::flash_backward(
    const kernels::AttentionShape& shape, const at::Tensor& q, const at::Tensor& k,
    const at::Tensor& v, const at::Tensor& output, const at::Tensor& output_gradient,
    const at::Tensor& log_sums) {
  const at::Tensor unread = ledger::empty_tensor({2}, q.options().dtype(at::ScalarType::UInt64));
  if (shape.documents != nullptr) {
    const PackedDocuments documents(shape, q.device());
    const auto [dq, dk, dv] = at::_flash_attention_backward(
        tokens_of(output_gradient), tokens_of(q), tokens_of(k), tokens_of(v), tokens_of(output),
        log_sums.transpose(0, 1).reshape({shape.heads, -1}), documents.begins, documents.begins,
        documents.longest, documents.longest, /*dropout_p=*/0, shape.causal, unread, unread,
        shape.scale);
    return {heads_of(shape, dq), heads_of(shape, dk), heads_of(shape, dv)};
  }
  return at::_scaled_dot_product_flash_attention_backward(
      output_gradient, q, k, v, output, log_sums, /*cum_seq_q=*/{}, /*cum_seq_k=*/{},
      shape.sequence, shape.keys, /*dropout_p=*/0, shape.causal, unread, unread, shape.scale);
}

}  // namespace smp::cuda
