#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/device_functions.h"
#include "kernels/element_types.h"
#include "kernels/tensor_region.h"

// The parts of layers: parameters with their gradients, norms and linear products. They call the
// functions of their tensors' device (device_functions.h).
namespace smp::kernels {

// A parameter of one rank and the view to which its gradient is added; a vector, or a matrix
// [out, in]. The tensors are undefined if the model has no such parameter.
struct Parameter {
  at::Tensor weight;
  at::Tensor gradient;

  bool defined() const { return weight.defined(); }
};

// x with dropout: a new tensor, or x itself if the dropout is off.
at::Tensor dropped(const Dropout& dropout, const at::Tensor& x);
void drop_in_place(const Dropout& dropout, const at::Tensor& x);

struct Norm {
  Parameter weight;
  Parameter bias;  // LayerNorm has one, RMSNorm has not
  double epsilon = 0;

  NormShape shape_of(const at::Tensor& x) const;
  at::Tensor empty_stats(const at::Tensor& x) const;
  // y; fills stats.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& stats) const;
  // Recomputes y.
  at::Tensor recompute(const at::Tensor& x, const at::Tensor& stats) const;
  // Overwrites dy with residual + the gradient of x; residual may be undefined. x has this rank's
  // tokens, and `region` sums the weights' gradients.
  void backward(at::Tensor& dy, const at::Tensor& x, const at::Tensor& stats,
                const at::Tensor& residual, const TensorRegion& region) const;
};

// a [m, k] times b^T, b [n, k]; either may be the transpose of a contiguous tensor. The result is a
// new tensor.
inline at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  return functions_of(a).product(a, b);
}

// Products with a weight [out, in]. Column-parallel layers split `out`, row-parallel ones `in`.
struct Linear {
  Parameter weight;
  Parameter bias;  // added by the caller, fused with the next operation

  at::Tensor forward(const at::Tensor& x) const;                            // x [n, in] -> [n, out]
  at::Tensor input_gradient(const at::Tensor& dy, double scale = 1) const;  // [n, out] -> [n, in]
  // Adds scale * dy^T x to the weight's gradient.
  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, double scale = 1) const;
  void add_bias_gradient(const at::Tensor& dy) const;

  // residual + dropout of (x weight^T (summed by the region) + bias); x of all tokens, the
  // residual, the result and its dropout of this rank's
  at::Tensor forward_residual(const at::Tensor& x, const at::Tensor& residual,
                              const TensorRegion& region, const Dropout& dropout) const;
};

}  // namespace smp::kernels
