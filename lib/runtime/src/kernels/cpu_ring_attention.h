#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention.h"
#include "kernels/device_functions.h"

// Ring attention (ring_attention.h) on the CPU's tensors, contiguous; "wide" as in
// device_functions.h. b * n are the tokens of this rank. Inputs have neither `kv` nor `table`, and
// a shape no relative positions. The calls of a rank, forward:
//
//   cpu_ring_keys()             its own block
//   cpu_ring_forward()          for its own block, then for each block that comes
//
// and backward, with d_queries and the gradient of each block zeros at first:
//
//   cpu_ring_keys()             again
//   cpu_ring_backward()         for each block; what it added goes on with the block
//   cpu_ring_turn_back()        with its own block's gradient, once all ranks have added to it
namespace smp::kernels {

// Writes `block` [b * n, kv_cols()]: prepared keys, and values.
void cpu_ring_keys(const AttentionShape& shape, const AttentionInputs& inputs,
                   const at::Tensor& block);

// `sums` [b * n, heads * value_width], wide, are the output over the blocks so far, and `log_sums`
// [b, heads, n], wide, the logarithms of its softmax's denominators. The own block starts both.
void cpu_ring_forward(const AttentionShape& shape, const AttentionInputs& inputs,
                      const at::Tensor& block, const model::TokenSlices& of_block, bool is_own,
                      const at::Tensor& sums, const at::Tensor& log_sums);

// For some pairs of samples and key/value heads: adds to d_queries [b * n, heads * head_dim] and to
// d_block, of the block's shape, both wide; and with the own block to gradients.sinks, if there are
// any. `output` and its gradient are of the inputs' type.
void cpu_ring_backward(const AttentionShape& shape, const AttentionInputs& inputs,
                       const at::Tensor& block, const model::TokenSlices& of_block, bool is_own,
                       const AttentionPart& pairs, const at::Tensor& output,
                       const at::Tensor& output_gradient, const at::Tensor& log_sums,
                       const at::Tensor& d_queries, const at::Tensor& d_block,
                       const AttentionGradients& gradients);

// inputs.packed becomes its own gradient; adds to gradients.norms, if there are any.
void cpu_ring_turn_back(const AttentionShape& shape, const AttentionInputs& inputs,
                        const at::Tensor& d_queries, const at::Tensor& d_block,
                        const AttentionGradients& gradients);

}  // namespace smp::kernels
