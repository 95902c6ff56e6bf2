#pragma once

#include "cuda/expert_launches.h"
#include "cuda/launches_of.h"

// Definitions of RouterLaunches and ExpertLaunches (expert_launches.h). Include this file once per
// Runner.
namespace smp::cuda {

template <typename Runner, typename C>
void RouterLaunches<Runner, C>::probabilities(const program::RouterAttributes& router,
                                              int64_t tokens, C* scores, C* log_sums) const {
  run_rows(runner_, tokens, router.experts, [=] SMP_BODY(typename Runner::Block & block) {
    router_probabilities(block, router, tokens, scores, log_sums);
  });
}

template <typename Runner, typename C>
void RouterLaunches<Runner, C>::choose(const program::RouterAttributes& router, int64_t tokens,
                                       const C* bias, const C* probabilities, C* of_groups,
                                       int32_t* chosen, C* weights) const {
  if (of_groups != nullptr) {
    runner_.run(blocks_of<Runner>(tokens * router.groups),
                [=] SMP_BODY(typename Runner::Block & block) {
                  group_scores(block, router, tokens, bias, probabilities, of_groups);
                });
  }
  run_rows(runner_, tokens, router.experts, [=] SMP_BODY(typename Runner::Block & block) {
    choose_experts(block, router, tokens, bias, probabilities, of_groups, chosen, weights);
  });
}

template <typename Runner, typename C>
void RouterLaunches<Runner, C>::choose_backward(const program::RouterAttributes& router,
                                                int64_t tokens, const RoutedPointers<C>& routed,
                                                C* probabilities) const {
  run_rows(runner_, tokens, router.experts, [=] SMP_BODY(typename Runner::Block & block) {
    choose_experts_backward(block, router, tokens, routed, probabilities);
  });
}

template <typename Runner, typename T>
void ExpertLaunches<Runner, T>::dispatch(int64_t used, int64_t cols, int64_t per_token,
                                         const int32_t* rows, const T* x, T* y) const {
  runner_.run(blocks_of_strips<Runner, T>(used * cols),
              [=] SMP_BODY(typename Runner::Block & block) {
                dispatch_rows(block, used, cols, per_token, rows, x, y);
              });
}

template <typename Runner, typename T>
void ExpertLaunches<Runner, T>::combine(int64_t tokens, int64_t cols, int64_t per_token,
                                        const int32_t* places, const T* x, T* y) const {
  runner_.run(blocks_of_strips<Runner, T>(tokens * cols),
              [=] SMP_BODY(typename Runner::Block & block) {
                combine_rows(block, tokens, cols, per_token, places, x, y);
              });
}

template <typename Runner, typename T>
void ExpertLaunches<Runner, T>::add_bias(int64_t rows, int64_t cols,
                                         const kernels::RowWeights<kernels::Wide<T>>& weights,
                                         const T* bias, T* y) const {
  runner_.run(blocks_of_strips<Runner, T>(rows * cols),
              [=] SMP_BODY(typename Runner::Block & block) {
                add_weighed_bias(block, rows, cols, weights, bias, y);
              });
}

template <typename Runner, typename T>
void ExpertLaunches<Runner, T>::bias_gradient(int64_t rows, int64_t cols,
                                              const kernels::RowWeights<kernels::Wide<T>>& weights,
                                              const T* bias, const T* dy,
                                              kernels::Wide<T>* gradient,
                                              kernels::Wide<T>* d_weights,
                                              kernels::Wide<T>* scratch) const {
  launch_column_sums(
      runner_, rows, cols,
      [=] SMP_BODY(int64_t row, int64_t col) {
        return weights.of(row) * kernels::Wide<T>(dy[row * cols + col]);
      },
      gradient, scratch);
  if (d_weights == nullptr) return;
  run_rows(runner_, rows, cols, [=] SMP_BODY(typename Runner::Block & block) {
    add_bias_products(block, rows, cols, weights, bias, dy, d_weights);
  });
}

template <kernels::ActivationKind kKind, typename Runner, typename T>
void launch_expert_activation(const Runner& runner, const ActivationRows<T>& rows, T* y) {
  runner.run(
      blocks_of_strips<Runner, T>(rows.rows * rows.cols),
      [=] SMP_BODY(typename Runner::Block & block) { weighed_activation<kKind>(block, rows, y); });
}

template <kernels::ActivationKind kKind, typename Runner, typename T>
void launch_expert_activation_backward(const Runner& runner, const ActivationRows<T>& rows, T* dy,
                                       kernels::Wide<T>* d_weights) {
  run_rows(runner, rows.rows, rows.cols, [=] SMP_BODY(typename Runner::Block & block) {
    weighed_activation_backward<kKind>(block, rows, dy, d_weights);
  });
}

template <typename Runner, typename T>
void ExpertLaunches<Runner, T>::activation_forward(kernels::ActivationKind activation,
                                                   const ActivationRows<T>& rows, T* y) const {
  with_activation(activation, [&](auto kind) {
    launch_expert_activation<decltype(kind)::value>(runner_, rows, y);
  });
}

template <typename Runner, typename T>
void ExpertLaunches<Runner, T>::activation_backward(kernels::ActivationKind activation,
                                                    const ActivationRows<T>& rows, T* dy,
                                                    kernels::Wide<T>* d_weights) const {
  with_activation(activation, [&](auto kind) {
    launch_expert_activation_backward<decltype(kind)::value>(runner_, rows, dy, d_weights);
  });
}

}  // namespace smp::cuda
