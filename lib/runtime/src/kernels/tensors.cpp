#include "kernels/tensors.h"

#include "ledger/tensor_factories.h"

namespace smp::kernels {

at::Tensor dropped(const Dropout& dropout, const at::Tensor& x) {
  if (!dropout.is_on()) return x;
  at::Tensor y = ledger::empty_tensor_like(x);
  functions_of(x).drop(dropout, x, y);
  return y;
}

void drop_in_place(const Dropout& dropout, const at::Tensor& x) {
  if (dropout.is_on()) functions_of(x).drop(dropout, x, x);
}

NormShape Norm::shape_of(const at::Tensor& x) const {
  return {.rows = x.size(0), .cols = x.size(1), .centered = bias.defined()};
}

at::Tensor Norm::empty_stats(const at::Tensor& x) const {
  return ledger::empty_tensor({x.size(0), shape_of(x).stats_per_row()}, wide_options(x));
}

at::Tensor Norm::forward(const at::Tensor& x, const at::Tensor& stats) const {
  at::Tensor y = ledger::empty_tensor_like(x);
  functions_of(x).norm_forward(shape_of(x), epsilon, x, weight.weight, bias.weight, y, stats);
  return y;
}

at::Tensor Norm::recompute(const at::Tensor& x, const at::Tensor& stats) const {
  at::Tensor y = ledger::empty_tensor_like(x);
  functions_of(x).norm_apply(shape_of(x), x, stats, weight.weight, bias.weight, y);
  return y;
}

void Norm::backward(at::Tensor& dy, const at::Tensor& x, const at::Tensor& stats,
                    const at::Tensor& residual, const TensorRegion& region) const {
  at::Tensor weight_gradient = weight.gradient, bias_gradient = bias.gradient;
  at::Tensor sums;  // of this rank's tokens
  if (region.parts() > 1) {
    sums = ledger::zero_tensor({bias.defined() ? 2 : 1, x.size(1)}, wide_options(x));
    weight_gradient = sums.select(0, 0);
    if (bias.defined()) bias_gradient = sums.select(0, 1);
  }
  functions_of(x).norm_backward(shape_of(x), dy, x, stats, weight.weight, residual, weight_gradient,
                                bias_gradient);
  if (region.parts() == 1) return;
  region.sum_over_tokens(sums, "tensor.norms");
  at::Tensor whole = weight.gradient;
  whole.add_(weight_gradient);
  if (!bias.defined()) return;
  whole = bias.gradient;
  whole.add_(bias_gradient);
}

at::Tensor Linear::forward(const at::Tensor& x) const { return product(x, weight.weight); }

at::Tensor Linear::input_gradient(const at::Tensor& dy, double scale) const {
  at::Tensor dx = product(dy, weight.weight.t());
  if (scale != 1) dx.mul_(scale);
  return dx;
}

void Linear::add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, double scale) const {
  functions_of(dy).add_product(dy, x, scale, weight.gradient);
}

void Linear::add_bias_gradient(const at::Tensor& dy) const {
  if (bias.defined()) functions_of(dy).add_column_sums(dy, bias.gradient);
}

at::Tensor Linear::forward_residual(const at::Tensor& x, const at::Tensor& residual,
                                    const TensorRegion& region, const Dropout& dropout) const {
  at::Tensor y = region.summed(forward(x), "tensor.forward");
  functions_of(y).add_residual(residual, bias.weight, y, dropout);
  return y;
}

}  // namespace smp::kernels
