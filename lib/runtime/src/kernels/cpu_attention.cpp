#include "kernels/attention_call.h"
#include "kernels/cpu_functions.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/program/attention_scratch.h"

namespace smp::kernels {
namespace {

// Where the heads of a call lie.
template <typename T, typename Element>
AttentionRows<Element> rows_of(const AttentionShape& shape, const AttentionInputs& inputs) {
  T* queries = data_of<T>(inputs.packed);
  if (!inputs.kv.defined()) return packed_rows<Element>(shape, queries);
  return {queries, shape.query_cols(), data_of<T>(inputs.kv), shape.kv_cols()};
}

// Scores of a pair.
int64_t scores_of_pair(const AttentionShape& shape) {
  return shape.heads / shape.kv_heads * shape.sequence * shape.keys;
}

}  // namespace

void cpu_attention_forward(const AttentionShape& shape, const AttentionInputs& inputs,
                           const at::Tensor& output, const at::Tensor& log_sums) {
  const at::Tensor scratch = ledger::empty_tensor(
      {program::attention_forward_scratch(shape, is_narrow(output))}, wide_options(output));
  with_element_type(output, [&](auto zero) {
    using T = decltype(zero);
    using C = Wide<T>;
    const SmallParameters<T> small(inputs);
    const AttentionParameters<C> given = small.given({});
    for_parts<C>(shape, true, scores_of_pair(shape), scratch,
                 [&](const AttentionPart& part, C* buffer) {
                   attention_forward(shape, given, rows_of<T, const T>(shape, inputs), part,
                                     data_of<T>(output), data_of<C>(log_sums), buffer);
                 });
  });
}

void cpu_attention_backward(const AttentionShape& shape, const AttentionInputs& inputs,
                            const at::Tensor& output, const at::Tensor& output_gradient,
                            const at::Tensor& log_sums, const AttentionGradients& gradients) {
  const at::Tensor scratch = ledger::empty_tensor(
      {program::attention_backward_scratch(shape, is_narrow(output))}, wide_options(output));
  const bool divides =
      !gradients.norms.defined() && !gradients.table.defined() && !gradients.sinks.defined();
  with_element_type(output, [&](auto zero) {
    using T = decltype(zero);
    using C = Wide<T>;
    const SmallParameters<T> small(inputs);
    const AttentionParameters<C> given = small.given(gradients);
    for_parts<C>(
        shape, divides, scores_of_pair(shape), scratch, [&](const AttentionPart& part, C* buffer) {
          attention_backward(shape, given, rows_of<T, T>(shape, inputs), part, data_of<T>(output),
                             data_of<T>(output_gradient), data_of<C>(log_sums), buffer);
        });
  });
}

}  // namespace smp::kernels
