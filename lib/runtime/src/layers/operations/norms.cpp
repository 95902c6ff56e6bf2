#include "kernels/element_types.h"
#include "layers/operations/kernels_of.h"

namespace smp::layers {
namespace {

kernels::NormShape shape_of(const program::NormAttributes& norm, const at::Tensor& x) {
  return {.rows = x.size(0), .cols = x.size(1), .centered = norm.centered};
}
kernels::NormShape shape_of(const Frame& frame, const at::Tensor& x) {
  return shape_of(frame.as<program::NormAttributes>(), x);
}

}  // namespace

void run_norm(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  const at::Tensor& stats = frame.make(1);
  kernels::functions_of(x).norm_forward(shape_of(frame, x),
                                        frame.as<program::NormAttributes>().epsilon, x, frame.in(1),
                                        frame.in(2), y, stats);
}

void run_norm_again(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  kernels::functions_of(x).norm_apply(shape_of(frame, x), x, frame.in(1), frame.in(2), frame.in(3),
                                      frame.make(0));
}

void run_norm_backward(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& x = frame.in(1);
  const kernels::NormShape shape = shape_of(frame, x);
  at::Tensor weight_gradient, bias_gradient;
  if (frame.has_out(1)) {  // sums over the rank's own tokens
    const at::Tensor& sums = frame.make_zero(1);
    weight_gradient = sums.select(0, 0);
    if (shape.centered) bias_gradient = sums.select(0, 1);
  } else {
    weight_gradient = frame.gradient(0);
    if (shape.centered) bias_gradient = frame.gradient(1);
  }
  kernels::functions_of(x).norm_backward(shape, dy, x, frame.in(2), frame.in(3), frame.in(4),
                                         weight_gradient, bias_gradient);
  frame.set_over(0, dy);
}

void run_sum_and_norm(Frame& frame) {
  const auto& attributes = frame.as<program::SumAndNormAttributes>();
  const at::Tensor& y = frame.in(1);
  const at::Tensor& normed = frame.make(1);
  const at::Tensor& stats = frame.make(2);
  kernels::functions_of(y).sum_and_norm(
      frame.in(0), frame.in(2), y, frame.dropout(attributes.dropout), shape_of(attributes.norm, y),
      attributes.norm.epsilon, frame.in(3), frame.in(4), normed, stats);
  frame.set_over(0, y);
}

}  // namespace smp::layers
