#include "layers/operations/kernels_of.h"

#include "smp/plan/base/check.h"

namespace smp::layers {

OperationKernel kernel_of(program::OperationKind kind) {
  // In the order of OperationKind.
  static constexpr OperationKernel kKernels[] = {
      run_norm,
      run_norm_again,
      run_norm_backward,
      run_sum_and_norm,
      run_product,
      run_input_gradient,
      run_weight_gradient,
      run_add_bias,
      run_bias_gradient,
      run_attention,
      run_attention_backward,
      run_qk_squares,
      run_qk_norm,
      run_qk_norm_sums,
      run_qk_norm_backward,
      run_latent_heads,
      run_latent_heads_backward,
      run_split_columns,
      run_join_columns,
      run_activation,
      run_activation_backward,
      run_drop,
      run_add,
      run_add_branch,
      run_scale,
      run_copy,
      run_cast,
      run_accumulate,
      run_take_rows,
      run_add_rows,
      run_add_positions,
      run_position_gradient,
      run_logits,
      run_softmax_loss,
      run_softmax_gradient,
      run_own_tokens,
      run_all_reduce,
      run_all_gather,
      run_reduce_scatter,
      run_wait,
      run_convolution,
      run_convolution_input_gradient,
      run_convolution_weight_gradient,
      run_relu,
      run_relu_backward,
      run_tanh,
      run_tanh_backward,
      run_max_pool,
      run_max_pool_backward,
      run_mean_pool,
      run_mean_pool_backward,
      run_reshape,
      run_gather_channels,
      run_own_channels,
      run_router_scores,
      run_route,
      run_route_backward,
      run_expert_load,
      run_router_input_gradient,
      run_router_weight_gradient,
      run_sigmoid,
      run_sigmoid_backward,
      run_sort_by_expert,
      run_dispatch,
      run_combine,
      run_expert_product,
      run_expert_input_gradient,
      run_expert_weight_gradient,
      run_expert_bias_gradient,
      run_expert_activation,
      run_expert_activation_backward,
      run_exchange,
  };
  // Those behind are other frameworks', which build() never makes.
  static_assert(std::size(kKernels) == static_cast<size_t>(program::OperationKind::kRotate));
  SMP_CHECK(static_cast<size_t>(kind) < std::size(kKernels));
  return kKernels[static_cast<size_t>(kind)];
}

}  // namespace smp::layers
