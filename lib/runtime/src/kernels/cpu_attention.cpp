#include <vector>

#include "kernels/cpu_functions.h"
#include "kernels/element_types.h"
#include "kernels/threads.h"
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

// Of the first range, in the ledger; further threads keep buffers of their own, which it does not
// count, as it does not those of oneDNN.
template <typename C>
C* scratch_of(int64_t range, const at::Tensor& first) {
  if (range == 0) return data_of<C>(first);
  thread_local std::vector<C> own;
  if (own.size() < static_cast<size_t>(first.numel())) {
    own = {};
    own.resize(static_cast<size_t>(first.numel()));
  }
  return own.data();
}

// Calls body(part, scratch) for the parts of a call that run side by side.
template <typename C, typename Body>
void for_parts(const AttentionShape& shape, bool divides, const at::Tensor& scratch,
               const Body& body) {
  if (!divides) return body(all_pairs(shape), data_of<C>(scratch));
  const int64_t cost = shape.heads / shape.kv_heads * shape.sequence * shape.keys;
  for_ranges({.count = all_pairs(shape).end, .cost = cost},
             [&](int64_t range, int64_t begin, int64_t end) {
               body(AttentionPart{begin, end}, scratch_of<C>(range, scratch));
             });
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
    for_parts<C>(shape, true, scratch, [&](const AttentionPart& part, C* buffer) {
      attention_forward(shape, given, rows_of<T, const T>(shape, inputs), part, data_of<T>(output),
                        data_of<C>(log_sums), buffer);
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
    for_parts<C>(shape, divides, scratch, [&](const AttentionPart& part, C* buffer) {
      attention_backward(shape, given, rows_of<T, T>(shape, inputs), part, data_of<T>(output),
                         data_of<T>(output_gradient), data_of<C>(log_sums), buffer);
    });
  });
}

}  // namespace smp::kernels
