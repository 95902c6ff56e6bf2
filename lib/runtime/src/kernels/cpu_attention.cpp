#include "kernels/cpu_functions.h"
#include "kernels/element_types.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/program/attention_scratch.h"

namespace smp::kernels {
namespace {

// The small parameters as the kernels want them, for one call.
template <typename T>
class SmallParameters {
 public:
  explicit SmallParameters(const AttentionInputs& inputs)
      : bias_(vector(inputs.bias)),
        q_weight_(vector(inputs.q_weight)),
        q_bias_(vector(inputs.q_bias)),
        k_weight_(vector(inputs.k_weight)),
        k_bias_(vector(inputs.k_bias)),
        table_(vector(inputs.table)),
        sinks_(vector(inputs.sinks)) {}

  AttentionParameters<Wide<T>> given(const AttentionGradients& gradients) const {
    AttentionParameters<Wide<T>> given{.bias = bias_.data(),
                                       .q_norm = {q_weight_.data(), q_bias_.data()},
                                       .k_norm = {k_weight_.data(), k_bias_.data()},
                                       .relative = table_.data(),
                                       .relative_gradient = data_of<Wide<T>>(gradients.table),
                                       .sinks = sinks_.data(),
                                       .sinks_gradient = data_of<Wide<T>>(gradients.sinks)};
    if (gradients.norms.defined()) {
      auto* rows = data_of<Wide<T>>(gradients.norms);
      const int64_t d = gradients.norms.size(1);
      given.q_norm.weight_gradient = rows;
      given.k_norm.weight_gradient = rows + d;
      if (gradients.norms.size(0) == 4) {
        given.q_norm.bias_gradient = rows + 2 * d;
        given.k_norm.bias_gradient = rows + 3 * d;
      }
    }
    return given;
  }

 private:
  static WideVector<T> vector(const at::Tensor& tensor) {
    return {tensor.defined() ? tensor.numel() : 0, data_of<T>(tensor)};
  }

  WideVector<T> bias_, q_weight_, q_bias_, k_weight_, k_bias_, table_, sinks_;
};

// Where the heads of a call lie.
template <typename T, typename Element>
AttentionRows<Element> rows_of(const AttentionShape& shape, const AttentionInputs& inputs) {
  T* queries = data_of<T>(inputs.packed);
  if (!inputs.kv.defined()) return packed_rows<Element>(shape, queries);
  return {queries, shape.query_cols(), data_of<T>(inputs.kv), shape.kv_cols()};
}

}  // namespace

void cpu_attention_forward(const AttentionShape& shape, const AttentionInputs& inputs,
                           const at::Tensor& output, const at::Tensor& log_sums) {
  const at::Tensor scratch = ledger::empty_tensor(
      {program::attention_forward_scratch(shape, is_narrow(output))}, wide_options(output));
  with_element_type(output, [&](auto zero) {
    using T = decltype(zero);
    const SmallParameters<T> small(inputs);
    attention_forward(shape, small.given({}), rows_of<T, const T>(shape, inputs),
                      data_of<T>(output), data_of<Wide<T>>(log_sums), data_of<Wide<T>>(scratch));
  });
}

void cpu_attention_backward(const AttentionShape& shape, const AttentionInputs& inputs,
                            const at::Tensor& output, const at::Tensor& output_gradient,
                            const at::Tensor& log_sums, const AttentionGradients& gradients) {
  const at::Tensor scratch = ledger::empty_tensor(
      {program::attention_backward_scratch(shape, is_narrow(output))}, wide_options(output));
  with_element_type(output, [&](auto zero) {
    using T = decltype(zero);
    const SmallParameters<T> small(inputs);
    attention_backward(shape, small.given(gradients), rows_of<T, T>(shape, inputs),
                       data_of<T>(output), data_of<T>(output_gradient), data_of<Wide<T>>(log_sums),
                       data_of<Wide<T>>(scratch));
  });
}

}  // namespace smp::kernels
