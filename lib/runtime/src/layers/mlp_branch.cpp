#include "layers/branches.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/base/check.h"

namespace smp::layers {
namespace {

kernels::Activation activation_of(const ModelSpec& model) {
  switch (model.mlp) {
    case MlpKind::kGelu:
    case MlpKind::kGeglu:
      return model.gelu == GeluKind::kErf ? kernels::Activation::kGeluErf
                                          : kernels::Activation::kGelu;
    case MlpKind::kRelu: return kernels::Activation::kRelu;
    case MlpKind::kSwiglu: return kernels::Activation::kSilu;
    case MlpKind::kSquaredRelu: break;  // refused: engine_rules.cpp
  }
  check_failed(__FILE__, __LINE__, "unknown mlp");
}

}  // namespace

MlpBranch::MlpBranch(const ModelSpec& model, const ParameterViews& parameters,
                     const kernels::TensorRegion& region)
    : layer_(parameters.layer()),
      hidden_dropout_(model.hidden_dropout),
      shares_norm_(model.shared_norm),
      norm_(parameters.norm(shares_norm_ ? "attention_norm" : "mlp_norm", model.norm_epsilon)),
      up_(parameters.linear("mlp.up")),
      down_(parameters.linear("mlp.down")),
      region_(region) {
  activation_.activation = activation_of(model);
  activation_.gated = is_gated(model.mlp);
  if (activation_.gated) {
    up_ = {parameters.joined("mlp.gate.weight", "mlp.up.weight"),
           parameters.joined("mlp.gate.bias", "mlp.up.bias")};
  }
  activation_.cols = down_.weight.weight.size(1);
}

kernels::ActivationShape MlpBranch::shape_of(int64_t tokens) const {
  kernels::ActivationShape shape = activation_;
  shape.rows = tokens;
  return shape;
}

kernels::Dropout MlpBranch::hidden_dropout(const at::Tensor& x, int64_t batch,
                                           const kernels::CallContext& call) const {
  const int64_t tokens = x.size(0) * region_.parts();
  return region_.of_own_tokens(
      kernels::dropout_of(hidden_dropout_, call, layer_, kernels::DropoutSite::kMlpOutput,
                          tokens / batch),
      tokens);
}

at::Tensor MlpBranch::forward(const at::Tensor& x, const at::Tensor& residual, int64_t batch,
                              const at::Tensor& stats, at::Tensor& u,
                              const kernels::CallContext& call) const {
  at::Tensor normal = shares_norm_ ? norm_.recompute(x, stats) : norm_.forward(x, stats);
  normal = region_.gathered(std::move(normal), kForward);
  u = up_.forward(normal);  // [n, f/t] or [n, 2 f/t]
  normal.reset();
  const at::Tensor activated = ledger::empty_tensor({u.size(0), activation_.cols}, x.options());
  kernels::functions_of(u).activation_forward(shape_of(u.size(0)), u, up_.bias.weight, activated);
  return down_.forward_residual(activated, residual, region_, hidden_dropout(x, batch, call));
}

at::Tensor MlpBranch::backward(const at::Tensor& dy, const at::Tensor& x, int64_t batch,
                               const at::Tensor& stats, at::Tensor& u,
                               const kernels::CallContext& call,
                               DeferredWeightGradients* deferred) const {
  at::Tensor activated, du;
  at::Tensor added = kernels::dropped(hidden_dropout(x, batch, call), dy);
  at::Tensor all = region_.gathered(added, kBackward);
  {
    at::Tensor gradient = down_.input_gradient(all);
    kernels::functions_of(u).activation_backward(shape_of(u.size(0)), u, up_.bias.weight, gradient,
                                                 up_.bias.gradient);
    activated = std::move(activation_.gated ? gradient : u);
    du = std::move(activation_.gated ? u : gradient);
  }
  down_.add_bias_gradient(all);
  run_or_defer_gathered(deferred, region_, std::move(added), std::move(all),
                        [this, activated = std::move(activated)](const at::Tensor& factor) {
                          down_.add_weight_gradient(factor, activated);
                        });

  kernels::TensorRegion::Sum dx = region_.start_sum(up_.input_gradient(du), kBackward);
  run_or_defer_gathered(deferred, region_, norm_.recompute(x, stats), {},
                        [this, du = std::move(du)](const at::Tensor& normal) {
                          up_.add_weight_gradient(du, normal);
                        });
  return dx.wait();
}

}  // namespace smp::layers
