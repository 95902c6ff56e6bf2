#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/device_functions.h"
#include "smp/runtime/kernels/product_libraries.h"

// The CPU's functions: the loops of this folder, whose rows the threads of a rank divide
// (threads.h). Nothing is copied that a loop does not need.
namespace smp::kernels {

const DeviceFunctions& cpu_functions();

// Its parts.
void cpu_attention_forward(const AttentionShape& shape, const AttentionInputs& inputs,
                           const at::Tensor& output, const at::Tensor& log_sums);
void cpu_attention_backward(const AttentionShape& shape, const AttentionInputs& inputs,
                            const at::Tensor& output, const at::Tensor& output_gradient,
                            const at::Tensor& log_sums, const AttentionGradients& gradients);

double cpu_softmax_loss(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                        const SoftmaxStatistics& statistics, const SoftmaxExchange& exchange,
                        bool makes_gradient);
void cpu_softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                          const SoftmaxStatistics& statistics, double scale);

// False in a torch that was built without oneDNN.
bool has_onednn_product();
// Products of fp32 by the library that was chosen for them (product_choice.h).
// fp16, which oneDNN multiplies on few CPUs, goes by way of fp32 copies.
at::Tensor cpu_product(const at::Tensor& a, const at::Tensor& b);
// In fp32 by way of a transposed copy of the narrower of dy and x, and a tensor of the weight's
// size; of 16-bit factors by way of their fp32 copies, since the sum over the tokens must not be
// rounded to theirs. Torch's own, and fp64, takes no memory beside the gradient.
void cpu_add_product(const at::Tensor& dy, const at::Tensor& x, double scale, at::Tensor gradient);
// Of fp32, by the library that is named.
at::Tensor cpu_product_by(ProductLibrary library, const at::Tensor& a, const at::Tensor& b);
void cpu_add_product_by(ProductLibrary library, const at::Tensor& dy, const at::Tensor& x,
                        double scale, at::Tensor gradient);

}  // namespace smp::kernels
