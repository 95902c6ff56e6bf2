#include "functions/tensors.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include "smp/plan/check.h"

namespace smp {

WorkPtr start_all_reduce(const TensorParallel& group, at::Tensor& tensor, ReduceOp op,
                         std::string_view label) {
  if (group.degree == 1) return nullptr;
  SMP_CHECK(tensor.is_contiguous());
  const DType dtype = tensor.scalar_type() == at::kDouble ? DType::kF64 : DType::kF32;
  return group.communicator->all_reduce(tensor.data_ptr(), tensor.data_ptr(), tensor.numel(), dtype,
                                        op, label);
}

void all_reduce(const TensorParallel& group, at::Tensor& tensor, ReduceOp op,
                std::string_view label) {
  if (const WorkPtr work = start_all_reduce(group, tensor, op, label)) work->wait();
}

NormShape Norm::shape_of(const at::Tensor& x) const {
  return {.rows = x.size(0), .cols = x.size(1), .centered = bias.defined()};
}

at::Tensor Norm::empty_stats(const at::Tensor& x) const {
  return at::empty({x.size(0), shape_of(x).stats_per_row()}, x.options());
}

at::Tensor Norm::forward(const at::Tensor& x, const at::Tensor& stats) const {
  at::Tensor y = at::empty_like(x);
  with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    norm_forward(shape_of(x), T(epsilon), data_of<T>(x), data_of<T>(weight.weight),
                 data_of<T>(bias.weight), data_of<T>(y), data_of<T>(stats));
  });
  return y;
}

at::Tensor Norm::recompute(const at::Tensor& x, const at::Tensor& stats) const {
  at::Tensor y = at::empty_like(x);
  with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    norm_apply(shape_of(x), data_of<T>(x), data_of<T>(stats), data_of<T>(weight.weight),
               data_of<T>(bias.weight), data_of<T>(y));
  });
  return y;
}

void Norm::backward(at::Tensor& dy, const at::Tensor& x, const at::Tensor& stats,
                    const at::Tensor& residual) const {
  with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    norm_backward(shape_of(x), data_of<T>(dy), data_of<T>(x), data_of<T>(stats),
                  data_of<T>(weight.weight), data_of<T>(residual), data_of<T>(dy),
                  data_of<T>(weight.gradient), data_of<T>(bias.gradient));
  });
}

at::Tensor Linear::forward(const at::Tensor& x) const { return at::mm(x, weight.weight.t()); }

at::Tensor Linear::input_gradient(const at::Tensor& dy, double scale) const {
  at::Tensor dx = at::empty({dy.size(0), weight.weight.size(1)}, dy.options());
  dx.addmm_(dy, weight.weight, 0, scale);
  return dx;
}

void Linear::add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, double scale) const {
  at::Tensor gradient = weight.gradient;
  gradient.addmm_(dy.t(), x, 1, scale);
}

void Linear::add_bias_gradient(const at::Tensor& dy) const {
  if (!bias.defined()) return;
  with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    add_column_sums(dy.size(0), dy.size(1), data_of<T>(dy), data_of<T>(bias.gradient));
  });
}

at::Tensor Linear::forward_residual(const at::Tensor& x, const at::Tensor& residual,
                                    const TensorParallel& group) const {
  at::Tensor y;
  const bool whole = group.degree == 1;
  if (whole && !bias.defined()) return at::addmm(residual, x, weight.weight.t());
  y = whole ? at::empty_like(residual) : forward(x);
  if (!whole) all_reduce(group, y, ReduceOp::kSum, "tensor.forward");
  with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = y.size(0), cols = y.size(1);
    if (whole) {
      add_bias(rows, cols, data_of<T>(residual), data_of<T>(bias.weight), data_of<T>(y));
    } else {
      add_residual(rows, cols, data_of<T>(residual), data_of<T>(bias.weight), data_of<T>(y));
    }
  });
  if (whole) y.addmm_(x, weight.weight.t());
  return y;
}

}  // namespace smp
