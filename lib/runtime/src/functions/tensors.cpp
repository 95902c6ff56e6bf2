#include "functions/tensors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "smp/plan/check.h"
#include "torch_dtype.h"

namespace smp {
namespace {

// oneDNN's product, as torch registers it. Torch's own mm goes to MKL, which leaves the AVX-512
// units of CPUs that are not Intel's idle: 88 against 190 GFLOP/s on a core of an EPYC 9005. Empty
// in a torch that was built without oneDNN.
using Scalars = c10::List<std::optional<at::Scalar>>;
using LinearSignature = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&, std::string_view, Scalars,
                                   std::optional<std::string_view>);
using OnednnLinear = c10::TypedOperatorHandle<LinearSignature>;

const std::optional<OnednnLinear>& onednn_linear() {
  static const std::optional<OnednnLinear> linear = []() -> std::optional<OnednnLinear> {
    const auto schema = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!schema) return std::nullopt;
    return schema->typed<LinearSignature>();
  }();
  return linear;
}

// Contiguous [cols, rows] of x [rows, cols], in fp32.
at::Tensor transposed_wide(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kFloat);
  return wide.t().contiguous();
}

}  // namespace

at::Tensor dropped(const Dropout& dropout, const at::Tensor& x) {
  if (!dropout.is_on()) return x;
  at::Tensor y = at::empty_like(x);
  with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    const int64_t cols = x.size(-1);
    drop(dropout, x.numel() / cols, cols, data_of<T>(x), data_of<T>(y));
  });
  return y;
}

NormShape Norm::shape_of(const at::Tensor& x) const {
  return {.rows = x.size(0), .cols = x.size(1), .centered = bias.defined()};
}

at::Tensor Norm::empty_stats(const at::Tensor& x) const {
  return at::empty({x.size(0), shape_of(x).stats_per_row()}, wide_options(x));
}

at::Tensor Norm::forward(const at::Tensor& x, const at::Tensor& stats) const {
  at::Tensor y = at::empty_like(x);
  with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    norm_forward(shape_of(x), Wide<T>(epsilon), data_of<T>(x), data_of<T>(weight.weight),
                 data_of<T>(bias.weight), data_of<T>(y), data_of<Wide<T>>(stats));
  });
  return y;
}

at::Tensor Norm::recompute(const at::Tensor& x, const at::Tensor& stats) const {
  at::Tensor y = at::empty_like(x);
  with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    norm_apply(shape_of(x), data_of<T>(x), data_of<Wide<T>>(stats), data_of<T>(weight.weight),
               data_of<T>(bias.weight), data_of<T>(y));
  });
  return y;
}

void Norm::backward(at::Tensor& dy, const at::Tensor& x, const at::Tensor& stats,
                    const at::Tensor& residual, const TensorRegion& region) const {
  at::Tensor weight_gradient = weight.gradient, bias_gradient = bias.gradient;
  at::Tensor sums;  // of this rank's tokens
  if (region.parts() > 1) {
    sums = at::zeros({bias.defined() ? 2 : 1, x.size(1)}, wide_options(x));
    weight_gradient = sums.select(0, 0);
    if (bias.defined()) bias_gradient = sums.select(0, 1);
  }
  with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    norm_backward(shape_of(x), data_of<T>(dy), data_of<T>(x), data_of<Wide<T>>(stats),
                  data_of<T>(weight.weight), data_of<T>(residual), data_of<T>(dy),
                  data_of<Wide<T>>(weight_gradient), data_of<Wide<T>>(bias_gradient));
  });
  if (region.parts() == 1) return;
  region.sum_over_tokens(sums, "tensor.norms");
  at::Tensor whole = weight.gradient;
  whole.add_(weight_gradient);
  if (!bias.defined()) return;
  whole = bias.gradient;
  whole.add_(bias_gradient);
}

bool has_onednn_product() { return onednn_linear().has_value(); }

// Of bf16 torch's own mm is oneDNN's too, and blocks the product in little memory, where the one
// above unpacks a transposed weight into fp32.
at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() == at::kHalf) {
    at::Tensor c;
    {
      const at::Tensor wide_a = a.to(at::kFloat), wide_b = b.to(at::kFloat);
      c = product(wide_a, wide_b);
    }
    return c.to(at::kHalf);
  }
  if (a.scalar_type() == at::kFloat) {
    if (const auto& linear = onednn_linear())
      return linear->call(a, b, std::nullopt, "none", Scalars(), "");
  }
  return at::mm(a, b.t());
}

at::Tensor Linear::forward(const at::Tensor& x) const { return product(x, weight.weight); }

at::Tensor Linear::input_gradient(const at::Tensor& dy, double scale) const {
  at::Tensor dx = product(dy, weight.weight.t());
  if (scale != 1) dx.mul_(scale);
  return dx;
}

void Linear::add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, double scale) const {
  at::Tensor gradient = weight.gradient;
  const bool dy_is_narrower = dy.size(1) <= x.size(1);
  // oneDNN wants its first factor contiguous: let that be a copy of the narrower one.
  if (is_narrow(dy)) {
    const at::Tensor first = transposed_wide(dy_is_narrower ? dy : x);
    const at::Tensor second = (dy_is_narrower ? x : dy).to(at::kFloat);
    const at::Tensor result = product(first, second.t());
    gradient.add_(dy_is_narrower ? result : result.t(), scale);
  } else if (dy.scalar_type() == at::kDouble) {
    gradient.addmm_(dy.t(), x, 1, scale);
  } else if (dy_is_narrower) {
    gradient.add_(product(dy.t().contiguous(), x.t()), scale);
  } else {
    gradient.add_(product(x.t().contiguous(), dy.t()).t(), scale);
  }
}

void Linear::add_bias_gradient(const at::Tensor& dy) const {
  if (!bias.defined()) return;
  with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    add_column_sums(dy.size(0), dy.size(1), data_of<T>(dy), data_of<Wide<T>>(bias.gradient));
  });
}

at::Tensor Linear::forward_residual(const at::Tensor& x, const at::Tensor& residual,
                                    const TensorRegion& region, const Dropout& dropout) const {
  at::Tensor y = region.summed(forward(x), "tensor.forward");
  with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    if (dropout.is_on()) {
      return add_residual_dropped(dropout, y.size(0), y.size(1), data_of<T>(residual),
                                  data_of<T>(bias.weight), data_of<T>(y));
    }
    add_residual(y.size(0), y.size(1), data_of<T>(residual), data_of<T>(bias.weight),
                 data_of<T>(y));
  });
  return y;
}

}  // namespace smp
