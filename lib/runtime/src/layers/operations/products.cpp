#include "layers/operations/kernels_of.h"

namespace smp::layers {

void run_product(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  frame.set(0, kernels::functions_of(x).product(x, frame.in(1)));
}

void run_logits(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  frame.set(0, kernels::functions_of(x).logits(x, frame.in(1)));
}

void run_input_gradient(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  at::Tensor dx = kernels::functions_of(dy).product(dy, frame.in(1).t());
  const double scale = frame.factor(frame.as<program::ProductAttributes>().scale, 2);
  if (scale != 1) dx.mul_(scale);
  frame.set(0, std::move(dx));
}

void run_weight_gradient(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  kernels::functions_of(dy).add_product(
      dy, frame.in(1), frame.factor(frame.as<program::ProductAttributes>().scale, 2),
      frame.gradient(0));
}

void run_bias_gradient(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  kernels::functions_of(dy).add_column_sums(dy, frame.gradient(0));
}

}  // namespace smp::layers
