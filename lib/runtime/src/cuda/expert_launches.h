#pragma once

#include <cstdint>

#include "cuda/experts_body.h"
#include "cuda/router_body.h"

// Launches of a mixture of experts, as launches.h has those of other layers; the bodies' headers
// document the computations.
namespace smp::cuda {

// C: float or double.
template <typename Runner, typename C>
class RouterLaunches {
 public:
  explicit RouterLaunches(const Runner& runner) : runner_(runner) {}

  void probabilities(const program::RouterAttributes& router, int64_t tokens, C* scores,
                     C* log_sums) const;
  // of_groups: scratch [tokens, groups]; null without groups.
  void choose(const program::RouterAttributes& router, int64_t tokens, const C* bias,
              const C* probabilities, C* of_groups, int32_t* chosen, C* weights) const;
  void choose_backward(const program::RouterAttributes& router, int64_t tokens,
                       const RoutedPointers<C>& routed, C* probabilities) const;

 private:
  const Runner& runner_;
};

// T: float, double, bf16 or fp16.
template <typename Runner, typename T>
class ExpertLaunches {
 public:
  explicit ExpertLaunches(const Runner& runner) : runner_(runner) {}

  void dispatch(int64_t used, int64_t cols, int64_t per_token, const int32_t* rows, const T* x,
                T* y) const;
  void combine(int64_t tokens, int64_t cols, int64_t per_token, const int32_t* places, const T* x,
               T* y) const;
  void add_bias(int64_t rows, int64_t cols, const kernels::RowWeights<kernels::Wide<T>>& weights,
                const T* bias, T* y) const;
  // d_weights may be null. Scratch: Launches::column_sums_scratch().
  void bias_gradient(int64_t rows, int64_t cols,
                     const kernels::RowWeights<kernels::Wide<T>>& weights, const T* bias,
                     const T* dy, kernels::Wide<T>* gradient, kernels::Wide<T>* d_weights,
                     kernels::Wide<T>* scratch) const;
  void activation_forward(kernels::ActivationKind activation, const ActivationRows<T>& rows,
                          T* y) const;
  void activation_backward(kernels::ActivationKind activation, const ActivationRows<T>& rows, T* dy,
                           kernels::Wide<T>* d_weights) const;

 private:
  const Runner& runner_;
};

}  // namespace smp::cuda
