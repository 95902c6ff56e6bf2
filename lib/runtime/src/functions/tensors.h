#pragma once

#include <ATen/core/Tensor.h>

#include "functions/attention.h"
#include "functions/dropout.h"
#include "functions/kernels.h"
#include "functions/tensor_region.h"

// The kernels on tensors: contiguous CPU matrices, [tokens, features], of fp64, fp32, bf16 or fp16.
// Where these are 16-bit, statistics and the gradients of weights are fp32.
namespace smp {

// A parameter of one rank and the view that its gradient is added to; a vector, or a matrix
// [out, in]. Undefined tensors where the model has no such parameter.
struct Parameter {
  at::Tensor weight;
  at::Tensor gradient;

  bool defined() const { return weight.defined(); }
};

// Calls body with a zero of the type of the tensor's elements.
template <typename Body>
void with_element_type(const at::Tensor& tensor, Body&& body) {
  switch (tensor.scalar_type()) {
    case at::kDouble: return body(double());
    case at::kBFloat16: return body(c10::BFloat16());
    case at::kHalf: return body(c10::Half());
    default: return body(float());
  }
}
inline bool is_narrow(const at::Tensor& tensor) { return tensor.element_size() == 2; }
// Of the same kind as `tensor`, but fp32 where that is 16-bit.
inline at::TensorOptions wide_options(const at::Tensor& tensor) {
  return is_narrow(tensor) ? tensor.options().dtype(at::kFloat) : tensor.options();
}

template <typename T>
T* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<T>() : nullptr;
}

// x with its dropout: a tensor of its own, or x itself where it is off.
at::Tensor dropped(const Dropout& dropout, const at::Tensor& x);

struct Norm {
  Parameter weight;
  Parameter bias;  // LayerNorm has one, RMSNorm has not
  double epsilon = 0;

  NormShape shape_of(const at::Tensor& x) const;
  at::Tensor empty_stats(const at::Tensor& x) const;
  // y; fills stats.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& stats) const;
  // y again.
  at::Tensor recompute(const at::Tensor& x, const at::Tensor& stats) const;
  // dy becomes residual + the gradient of x; residual may be undefined. x is of this rank's tokens:
  // `region` sums the weights' gradients.
  void backward(at::Tensor& dy, const at::Tensor& x, const at::Tensor& stats,
                const at::Tensor& residual, const TensorRegion& region) const;
};

// Whether product() of fp32 is oneDNN's; in a torch that was built without it, it is torch's own.
bool has_onednn_product();

// a [m, k] times b^T, b [n, k]; either may be the transpose of a contiguous tensor. The result is a
// new tensor. fp16, which oneDNN multiplies on few CPUs, goes by way of fp32 copies.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

// Products with a weight [out, in]. Column-parallel layers cut `out`, row-parallel ones `in`.
struct Linear {
  Parameter weight;
  Parameter bias;  // added by whoever uses the product, fused with what follows

  at::Tensor forward(const at::Tensor& x) const;                            // x [n, in] -> [n, out]
  at::Tensor input_gradient(const at::Tensor& dy, double scale = 1) const;  // [n, out] -> [n, in]
  // Adds scale * dy^T x to the weight's gradient; in fp32 by way of a transposed copy of the
  // narrower of dy and x, and a tensor of the weight's size; of 16-bit factors by way of their fp32
  // copies, since the sum over the tokens must not be rounded to theirs.
  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, double scale = 1) const;
  void add_bias_gradient(const at::Tensor& dy) const;

  // residual + dropout of (x weight^T (summed by the region) + bias); x of all tokens, the
  // residual, the result and its dropout of this rank's
  at::Tensor forward_residual(const at::Tensor& x, const at::Tensor& residual,
                              const TensorRegion& region, const Dropout& dropout) const;
};

}  // namespace smp
