#pragma once

#include "kernels/device_functions.h"
#include "layers/frame.h"

// The kernels of operations, by family, each in its file; rules_of() describes what each does.
namespace smp::layers {

void run_norm(Frame& frame);
void run_norm_again(Frame& frame);
void run_norm_backward(Frame& frame);
void run_sum_and_norm(Frame& frame);

void run_product(Frame& frame);
void run_input_gradient(Frame& frame);
void run_weight_gradient(Frame& frame);
void run_bias_gradient(Frame& frame);
void run_logits(Frame& frame);

void run_attention(Frame& frame);
void run_attention_backward(Frame& frame);
void run_qk_squares(Frame& frame);
void run_qk_norm(Frame& frame);
void run_qk_norm_sums(Frame& frame);
void run_qk_norm_backward(Frame& frame);
void run_latent_heads(Frame& frame);
void run_latent_heads_backward(Frame& frame);
void run_split_columns(Frame& frame);
void run_join_columns(Frame& frame);
void run_place_columns(Frame& frame);
void run_take_columns(Frame& frame);

void run_activation(Frame& frame);
void run_activation_backward(Frame& frame);
void run_add_bias(Frame& frame);
void run_drop(Frame& frame);
void run_add(Frame& frame);
void run_add_branch(Frame& frame);
void run_scale(Frame& frame);
void run_copy(Frame& frame);
void run_cast(Frame& frame);
void run_accumulate(Frame& frame);

void run_take_rows(Frame& frame);
void run_add_rows(Frame& frame);
void run_add_positions(Frame& frame);
void run_position_gradient(Frame& frame);

void run_softmax_loss(Frame& frame);
void run_softmax_gradient(Frame& frame);

void run_own_tokens(Frame& frame);
void run_exchange(Frame& frame);
void run_all_reduce(Frame& frame);
void run_all_gather(Frame& frame);
void run_reduce_scatter(Frame& frame);
void run_wait(Frame& frame);
void run_gather_channels(Frame& frame);
void run_own_channels(Frame& frame);

void run_convolution(Frame& frame);
void run_convolution_input_gradient(Frame& frame);
void run_convolution_weight_gradient(Frame& frame);
void run_relu(Frame& frame);
void run_relu_backward(Frame& frame);
void run_tanh(Frame& frame);
void run_tanh_backward(Frame& frame);
void run_max_pool(Frame& frame);
void run_max_pool_backward(Frame& frame);
void run_mean_pool(Frame& frame);
void run_mean_pool_backward(Frame& frame);
void run_reshape(Frame& frame);

void run_router_scores(Frame& frame);
void run_route(Frame& frame);
void run_route_backward(Frame& frame);
void run_expert_load(Frame& frame);
void run_router_input_gradient(Frame& frame);
void run_router_weight_gradient(Frame& frame);
void run_sigmoid(Frame& frame);
void run_sigmoid_backward(Frame& frame);
void run_sort_by_expert(Frame& frame);
void run_expert_counts(Frame& frame);
void run_take_weights(Frame& frame);
void run_put_weights(Frame& frame);
void run_send_rows(Frame& frame);
void run_return_rows(Frame& frame);
void run_rows_by_expert(Frame& frame);
void run_rows_by_rank(Frame& frame);
void run_dispatch(Frame& frame);
void run_combine(Frame& frame);
void run_expert_product(Frame& frame);
void run_expert_input_gradient(Frame& frame);
void run_expert_weight_gradient(Frame& frame);
void run_expert_bias_gradient(Frame& frame);
// To the rows of an expert product, as its operands say.
void add_expert_biases(const Frame& frame, const at::Tensor& y);
void run_expert_activation(Frame& frame);
void run_expert_activation_backward(Frame& frame);

}  // namespace smp::layers
