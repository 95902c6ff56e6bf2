#include "layers/operations/kernels_of.h"

namespace smp::layers {
namespace {

kernels::ActivationShape shape_of(const Frame& frame, const at::Tensor& u) {
  const auto& attributes = frame.as<program::ActivationAttributes>();
  const int64_t cols = u.numel() / u.size(0);
  return {.rows = u.size(0),
          .cols = attributes.gated ? cols / 2 : cols,
          .activation = attributes.activation,
          .gated = attributes.gated};
}

}  // namespace

void run_activation(Frame& frame) {
  const at::Tensor& u = frame.in(0);
  kernels::functions_of(u).activation_forward(shape_of(frame, u), u, frame.in(1), frame.make(0));
}

void run_activation_backward(Frame& frame) {
  const at::Tensor& u = frame.in(0);
  const at::Tensor& dy = frame.in(2);
  const at::Tensor none;
  kernels::functions_of(u).activation_backward(shape_of(frame, u), u, frame.in(1), dy,
                                               frame.gradients() > 0 ? frame.gradient(0) : none);
  const bool gated = frame.as<program::ActivationAttributes>().gated;
  frame.set_over(0, gated ? u : dy);
  frame.set_over(1, gated ? dy : u);
}

void run_add_bias(Frame& frame) {
  at::Tensor sum = frame.in(0);
  frame.set_over(0, sum.add_(frame.in(1)));
}

void run_drop(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const kernels::Dropout dropout = frame.dropout(frame.as<program::DropoutAttributes>());
  const at::Tensor& y = frame.make_or_over(0, 0);
  if (!dropout.is_on() && y.data_ptr() == x.data_ptr()) return;
  kernels::functions_of(x).drop(dropout, x.view({x.size(0), -1}), y.view({y.size(0), -1}));
}

void run_add(Frame& frame) {
  const at::Tensor& y = frame.in(1);
  kernels::functions_of(y).add_residual(frame.in(0), {}, y, {});
  frame.set_over(0, y);
}

void run_add_branch(Frame& frame) {
  const at::Tensor& y = frame.in(1);
  kernels::functions_of(y).add_residual(frame.in(0), frame.in(2), y,
                                        frame.dropout(frame.as<program::DropoutAttributes>()));
  frame.set_over(0, y);
}

void run_scale(Frame& frame) {
  at::Tensor x = frame.in(0);
  const double scale = frame.factor(frame.as<program::ProductAttributes>().scale, 1);
  if (scale != 1) x.mul_(scale);
  frame.set_over(0, x);
}

void run_copy(Frame& frame) { frame.make(0).copy_(frame.in(0)); }

void run_cast(Frame& frame) { frame.make(0).copy_(frame.in(0)); }

void run_accumulate(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const kernels::DeviceFunctions& functions = kernels::functions_of(x);
  if (frame.gradients() == 1) return functions.accumulate(x, frame.gradient(0));
  for (size_t i = 0; i < frame.gradients(); ++i) {
    functions.accumulate(x.select(0, static_cast<int64_t>(i)), frame.gradient(i));
  }
}

}  // namespace smp::layers
