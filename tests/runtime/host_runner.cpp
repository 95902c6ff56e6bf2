#include "host_runner.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "kernels/document_offsets.h"

namespace smp::test {
namespace {

// body(shape of one document, part): part(x) is of [b, heads, s, d], or [b, heads, s], what belongs
// to the document, a view.
template <typename Body>
void for_each_document(const kernels::AttentionShape& shape, const Body& body) {
  const kernels::DocumentOffsets places = kernels::document_offsets(shape);
  for (size_t i = 0; i + 1 < places.begins.size(); ++i) {
    const int64_t begin = places.begins[i], count = places.begins[i + 1] - begin;
    kernels::AttentionShape alone = shape;
    alone.documents = alone.documents_on_host = nullptr;
    alone.batch = 1;
    alone.sequence = alone.keys = count;
    body(alone, [&](const at::Tensor& x) {
      return x.narrow(0, begin / shape.sequence, 1).narrow(2, begin % shape.sequence, count);
    });
  }
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> HostRunner::packed_forward(const kernels::AttentionShape& shape,
                                                              const at::Tensor& q,
                                                              const at::Tensor& k,
                                                              const at::Tensor& v) const {
  const at::Tensor output = at::empty_like(q);
  at::Tensor log_sums;
  for_each_document(shape, [&](const kernels::AttentionShape& alone, const auto& part) {
    const auto [one, sums] = flash_forward(alone, part(q), part(k), part(v));
    part(output).copy_(one);
    if (!log_sums.defined()) {
      log_sums = at::empty({shape.batch, shape.heads, shape.sequence}, sums.options());
    }
    part(log_sums).copy_(sums);
  });
  return {output, log_sums};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> HostRunner::packed_backward(
    const kernels::AttentionShape& shape, const at::Tensor& q, const at::Tensor& k,
    const at::Tensor& v, const at::Tensor& output, const at::Tensor& output_gradient,
    const at::Tensor& log_sums) const {
  const at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
  for_each_document(shape, [&](const kernels::AttentionShape& alone, const auto& part) {
    const auto [one_q, one_k, one_v] =
        flash_backward(alone, part(q), part(k), part(v), part(output), part(output_gradient),
                       part(log_sums).contiguous());
    part(dq).copy_(one_q);
    part(dk).copy_(one_k);
    part(dv).copy_(one_v);
  });
  return {dq, dk, dv};
}

// The CPU's wants as many key/value heads as others.
std::tuple<at::Tensor, at::Tensor> HostRunner::flash_forward(const kernels::AttentionShape& shape,
                                                             const at::Tensor& q,
                                                             const at::Tensor& k,
                                                             const at::Tensor& v) const {
  if (shape.documents != nullptr) return packed_forward(shape, q, k, v);
  const int64_t group = shape.heads / shape.kv_heads;
  return at::_scaled_dot_product_flash_attention_for_cpu(q, k.repeat_interleave(group, 1),
                                                         v.repeat_interleave(group, 1), 0,
                                                         shape.causal, {}, shape.scale);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> HostRunner::flash_backward(
    const kernels::AttentionShape& shape, const at::Tensor& q, const at::Tensor& k,
    const at::Tensor& v, const at::Tensor& output, const at::Tensor& output_gradient,
    const at::Tensor& log_sums) const {
  if (shape.documents != nullptr) {
    return packed_backward(shape, q, k, v, output, output_gradient, log_sums);
  }
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
