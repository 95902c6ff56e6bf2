#pragma once

#include "kernels/device_functions.h"
#include "smp/runtime/kernels/context_parallel.h"

// Attention of context-parallel ranks that pass their keys and values on (ring_attention.h): the
// next block travels while this one is attended to. Memory is in proportion to a rank's tokens,
// whatever their number of ranks. On CPUs.
namespace smp::layers {

// As attention_forward() and attention_backward() of device_functions.h, over the keys of all ranks
// of the ring. Messages are "context.forward" and "context.backward".
void ring_forward(const kernels::ContextParallel& context, const kernels::AttentionShape& shape,
                  const kernels::AttentionInputs& inputs, const at::Tensor& output,
                  const at::Tensor& log_sums);
void ring_backward(const kernels::ContextParallel& context, const kernels::AttentionShape& shape,
                   const kernels::AttentionInputs& inputs, const at::Tensor& output,
                   const at::Tensor& output_gradient, const at::Tensor& log_sums,
                   const kernels::AttentionGradients& gradients);

}  // namespace smp::layers
