#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device_functions.h"
#include "kernels/element_types.h"
#include "kernels/threads.h"

// From tensors to a call of the CPU's attention, and of ring attention: small parameters, and the
// parts that threads divide it into.
namespace smp::kernels {

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

// Of the first range, in the ledger; further threads keep buffers of their own, which it does not
// count, as it does not those of oneDNN.
template <typename C>
C* attention_scratch_of(int64_t range, const at::Tensor& first) {
  if (range == 0) return data_of<C>(first);
  thread_local std::vector<C> own;
  if (own.size() < static_cast<size_t>(first.numel())) {
    own = {};
    own.resize(static_cast<size_t>(first.numel()));
  }
  return own.data();
}

// Calls body(part, scratch) for the parts of `pairs` that run side by side, where a call `divides`.
// `cost`: elements of a pair (DividedWork).
template <typename C, typename Body>
void for_parts(const AttentionPart& pairs, bool divides, int64_t cost, const at::Tensor& scratch,
               const Body& body) {
  if (!divides) return body(pairs, data_of<C>(scratch));
  for_ranges({.count = pairs.end - pairs.begin, .cost = cost},
             [&](int64_t range, int64_t begin, int64_t end) {
               body(AttentionPart{pairs.begin + begin, pairs.begin + end},
                    attention_scratch_of<C>(range, scratch));
             });
}
template <typename C, typename Body>
void for_parts(const AttentionShape& shape, bool divides, int64_t cost, const at::Tensor& scratch,
               const Body& body) {
  for_parts<C>(all_pairs(shape), divides, cost, scratch, body);
}

}  // namespace smp::kernels
