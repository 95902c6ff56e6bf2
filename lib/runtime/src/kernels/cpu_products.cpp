#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>

#include "kernels/cpu_functions.h"
#include "kernels/element_types.h"
#include "kernels/product_choice.h"
#include "kernels/transposed_sum.h"
#include "smp/plan/base/check.h"

namespace smp::kernels {
namespace {

// oneDNN's product, as torch registers it; empty in a torch that was built without oneDNN. Torch's
// own mm goes to MKL, which leaves the AVX-512 units of CPUs that are not Intel's idle: 88 against
// 190 GFLOP/s on a core of an EPYC 9005. On a Cascade Lake it is MKL that is faster, 130
// against 92.
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

// gradient += scale * product, or its transpose.
void add_scaled(const at::Tensor& product, bool transposed, double scale, at::Tensor& gradient) {
  if (!transposed) {
    gradient.add_(product, scale);
    return;
  }
  SMP_CHECK(product.is_contiguous() && gradient.stride(1) == 1);
  add_transposed(gradient.size(0), gradient.size(1), static_cast<float>(scale),
                 product.const_data_ptr<float>(), gradient.mutable_data_ptr<float>(),
                 gradient.stride(0));
}

}  // namespace

bool has_onednn_product() { return onednn_linear().has_value(); }

// Of bf16 torch's own mm is oneDNN's too, and blocks the product in little memory, where the one
// above unpacks a transposed weight into fp32.
at::Tensor cpu_product(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() == at::kHalf) {
    at::Tensor c;
    {
      const at::Tensor wide_a = a.to(at::kFloat), wide_b = b.to(at::kFloat);
      c = cpu_product(wide_a, wide_b);
    }
    return c.to(at::kHalf);
  }
  if (a.scalar_type() != at::kFloat) return a.mm(b.t());
  const bool is_matrix = b.stride(1) == 1;  // and not its transpose
  const program::ProductKind kind =
      is_matrix ? program::ProductKind::kForward : program::ProductKind::kInputGradient;
  return cpu_product_by(library_of({kind, b.size(is_matrix ? 0 : 1), b.size(is_matrix ? 1 : 0)}), a,
                        b);
}

at::Tensor cpu_product_by(ProductLibrary library, const at::Tensor& a, const at::Tensor& b) {
  if (library == ProductLibrary::kTorch) return a.mm(b.t());
  return onednn_linear()->call(a, b, std::nullopt, "none", Scalars(), "");
}

void cpu_add_product(const at::Tensor& dy, const at::Tensor& x, double scale, at::Tensor gradient) {
  const bool dy_is_narrower = dy.size(1) <= x.size(1);
  if (is_narrow(dy)) {
    const at::Tensor first = transposed_wide(dy_is_narrower ? dy : x);
    const at::Tensor second = (dy_is_narrower ? x : dy).to(at::kFloat);
    add_scaled(cpu_product(first, second.t()), !dy_is_narrower, scale, gradient);
  } else if (dy.scalar_type() == at::kDouble) {
    gradient.addmm_(dy.t(), x, 1, scale);
  } else {
    cpu_add_product_by(library_of({program::ProductKind::kWeightGradient, dy.size(1), x.size(1)}),
                       dy, x, scale, gradient);
  }
}

void cpu_add_product_by(ProductLibrary library, const at::Tensor& dy, const at::Tensor& x,
                        double scale, at::Tensor gradient) {
  if (library == ProductLibrary::kTorch) {
    gradient.addmm_(dy.t(), x, 1, scale);
    return;
  }
  // oneDNN wants its first factor contiguous: let that be a copy of the narrower one.
  const bool dy_is_narrower = dy.size(1) <= x.size(1);
  const at::Tensor &narrower = dy_is_narrower ? dy : x, &wider = dy_is_narrower ? x : dy;
  add_scaled(cpu_product_by(library, narrower.t().contiguous(), wider.t()), !dy_is_narrower, scale,
             gradient);
}

}  // namespace smp::kernels
