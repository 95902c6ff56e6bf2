#include "kernels/cpu_ring_attention.h"

#include "kernels/attention_call.h"
#include "kernels/ring_attention.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/base/check.h"
#include "smp/plan/program/attention_scratch.h"

namespace smp::kernels {
namespace {

void check_ring_inputs(const AttentionShape& shape, const AttentionInputs& inputs) {
  SMP_CHECK(shape.causal);
  SMP_CHECK_EQ(shape.relative_buckets, 0);
  SMP_CHECK(!inputs.kv.defined() && !inputs.table.defined());
  SMP_CHECK_EQ(inputs.packed.numel(), shape.batch * shape.sequence * shape.packed_cols());
}

at::Tensor wide_scratch(const at::Tensor& like, int64_t elements) {
  return ledger::empty_tensor({elements}, wide_options(like));
}
at::Tensor ring_forward_scratch(const AttentionShape& shape, const at::Tensor& like) {
  return wide_scratch(like, program::ring_attention_forward_scratch(shape));
}
at::Tensor ring_backward_scratch(const AttentionShape& shape, const at::Tensor& like) {
  return wide_scratch(like, program::ring_attention_backward_scratch(shape, is_narrow(like)));
}

// Elements of a pair: of its rows, and of its scores over a block.
int64_t ring_row_elements(const AttentionShape& shape) {
  return shape.sequence * shape.packed_cols() / shape.kv_heads;
}
int64_t ring_scores(const AttentionShape& shape) {
  return shape.heads / shape.kv_heads * shape.sequence * shape.sequence;
}

}  // namespace

void cpu_ring_keys(const AttentionShape& shape, const AttentionInputs& inputs,
                   const at::Tensor& block) {
  check_ring_inputs(shape, inputs);
  const at::Tensor scratch = ring_forward_scratch(shape, block);
  with_element_type(block, [&](auto zero) {
    using T = decltype(zero);
    using C = Wide<T>;
    const SmallParameters<T> small(inputs);
    const AttentionParameters<C> given = small.given({});
    const T* packed = data_of<T>(inputs.packed);
    for_parts<C>(shape, true, ring_row_elements(shape), scratch,
                 [&](const AttentionPart& part, C* buffer) {
                   ring_attention_keys(shape, given, packed, part, data_of<T>(block), buffer);
                 });
  });
}

void cpu_ring_forward(const AttentionShape& shape, const AttentionInputs& inputs,
                      const at::Tensor& block, const model::TokenSlices& of_block, bool is_own,
                      const at::Tensor& sums, const at::Tensor& log_sums) {
  check_ring_inputs(shape, inputs);
  const at::Tensor scratch = ring_forward_scratch(shape, block);
  with_element_type(block, [&](auto zero) {
    using T = decltype(zero);
    using C = Wide<T>;
    const SmallParameters<T> small(inputs);
    const AttentionParameters<C> given = small.given({});
    const T* packed = data_of<T>(inputs.packed);
    const RingBlock<T> keys{data_of<T>(block), of_block, is_own};
    const RingResults<C> results{data_of<C>(sums), data_of<C>(log_sums)};
    for_parts<C>(shape, true, ring_scores(shape), scratch,
                 [&](const AttentionPart& part, C* buffer) {
                   ring_attention_forward(shape, given, packed, keys, part, results, buffer);
                 });
  });
}

void cpu_ring_backward(const AttentionShape& shape, const AttentionInputs& inputs,
                       const at::Tensor& block, const model::TokenSlices& of_block, bool is_own,
                       const AttentionPart& pairs, const at::Tensor& output,
                       const at::Tensor& output_gradient, const at::Tensor& log_sums,
                       const at::Tensor& d_queries, const at::Tensor& d_block,
                       const AttentionGradients& gradients) {
  check_ring_inputs(shape, inputs);
  const at::Tensor scratch = ring_backward_scratch(shape, block);
  const bool divides = !is_own || !gradients.sinks.defined();
  with_element_type(block, [&](auto zero) {
    using T = decltype(zero);
    using C = Wide<T>;
    const SmallParameters<T> small(inputs);
    const AttentionParameters<C> given = small.given(gradients);
    const T* packed = data_of<T>(inputs.packed);
    const RingBlock<T> keys{data_of<T>(block), of_block, is_own};
    const RingGradients<C> sums{data_of<C>(d_queries), data_of<C>(d_block)};
    for_parts<C>(
        pairs, divides, ring_scores(shape), scratch, [&](const AttentionPart& part, C* buffer) {
          ring_attention_backward(shape, given, packed, keys, part, data_of<T>(output),
                                  data_of<T>(output_gradient), data_of<C>(log_sums), sums, buffer);
        });
  });
}

void cpu_ring_turn_back(const AttentionShape& shape, const AttentionInputs& inputs,
                        const at::Tensor& d_queries, const at::Tensor& d_block,
                        const AttentionGradients& gradients) {
  check_ring_inputs(shape, inputs);
  const at::Tensor scratch = ring_backward_scratch(shape, inputs.packed);
  with_element_type(inputs.packed, [&](auto zero) {
    using T = decltype(zero);
    using C = Wide<T>;
    const SmallParameters<T> small(inputs);
    const AttentionParameters<C> given = small.given(gradients);
    const RingGradients<const C> sums{data_of<C>(d_queries), data_of<C>(d_block)};
    for_parts<C>(shape, !gradients.norms.defined(), ring_row_elements(shape), scratch,
                 [&](const AttentionPart& part, C* buffer) {
                   ring_attention_turn_back(shape, given, data_of<T>(inputs.packed), sums, part,
                                            buffer);
                 });
  });
}

}  // namespace smp::kernels
