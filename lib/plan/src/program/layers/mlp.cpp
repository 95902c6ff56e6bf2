#include "program/layers/branches.h"
#include "smp/plan/base/check.h"

namespace smp::program {

namespace {

ActivationKind gelu_of(GeluKind gelu) {
  switch (gelu) {
    case GeluKind::kTanh: return ActivationKind::kGelu;
    case GeluKind::kErf: return ActivationKind::kGeluErf;
    case GeluKind::kSigmoid: return ActivationKind::kGeluSigmoid;
  }
  check_failed(__FILE__, __LINE__, "unknown gelu");
}

}  // namespace

ActivationAttributes activation_of(const ModelSpec& model) {
  switch (model.mlp) {
    case MlpKind::kGelu:
    case MlpKind::kGeglu:
      return {gelu_of(model.gelu), is_gated(model.mlp), model.glu_limit, model.glu_offset};
    case MlpKind::kRelu:
    case MlpKind::kSquaredRelu:  // refused to run (engine_rules.cpp), and priced alike
      return {ActivationKind::kRelu, false};
    case MlpKind::kSwiglu: return {ActivationKind::kSilu, true, model.glu_limit, model.glu_offset};
  }
  check_failed(__FILE__, __LINE__, "unknown mlp");
}

MlpBranch::MlpBranch(ProgramBuilder& builder)
    : builder_(builder),
      shares_norm_(builder.model().shared_norm),
      region_(builder, builder.call().kinds.mlp),
      activation_(activation_of(builder.model())),
      norm_(branch_norm_parts(builder, shares_norm_ ? "attention_norm" : "mlp_norm")),
      up_(builder.parameters(activation_.gated ? "mlp.gate.weight" : "mlp.up.weight",
                             "mlp.up.weight")),
      up_bias_(
          builder.parameters(activation_.gated ? "mlp.gate.bias" : "mlp.up.bias", "mlp.up.bias")),
      down_(builder.parameter("mlp.down.weight")),
      down_bias_(builder.parameter("mlp.down.bias")) {}

ValueId MlpBranch::forward(ValueId x, ValueId residual, ValueId stats) {
  x_ = x;
  stats_ = stats;
  Normed normed{kNoValue, stats};
  if (shares_norm_) {
    normed.y = norm_again(builder_, norm_, x, stats, "mlp norm");
  } else {
    normed = norm(builder_, norm_, x, "mlp norm");
    stats_ = normed.stats;
  }
  const int64_t parts = region_.degree();
  up_result_ = product(builder_, region_.gathered(normed.y, kForwardLabel), up_,
                       activation_.gated ? "gate and up" : "up", {0, "ffn", parts});
  before_activation_ = add_bias(builder_, up_result_, up_bias_);
  const ValueId activated = builder_.made(
      "activated", region_.all_tokens({builder_.value(down_).shape[1].size, "ffn", parts}),
      builder_.dtype());
  builder_.add(OperationKind::kActivation, {before_activation_, kNoValue}, {activated},
               activation_);
  const ValueId y =
      region_.summed(product(builder_, activated, down_, "down", {0, "hidden"}), kForwardLabel);
  return add_branch(builder_, "mlp_norm", residual, y, down_bias_,
                    hidden_dropout(builder_, region_, DropoutSite::kMlpOutput), "x + mlp");
}

void MlpBranch::rematerialize() {
  const ValueId normal = norm_again(builder_, norm_, x_, stats_, "mlp norm");
  const ValueId all = region_.gathered(normal, kForwardLabel);
  builder_.add(OperationKind::kProduct, {all, up_}, {up_result_});
  if (before_activation_ != up_result_) {
    builder_.add(OperationKind::kAddBias, {up_result_, up_bias_}, {before_activation_});
  }
}

ValueId MlpBranch::backward(ValueId dy) {
  const ValueId added =
      dropped(builder_, dy, hidden_dropout(builder_, region_, DropoutSite::kMlpOutput));
  const ValueId all = region_.gathered(added, kBackwardLabel);
  const ValueId gradient =
      input_gradient(builder_, all, down_, "d activated", {0, "ffn", region_.degree()});
  // Of the two buffers one gets the gradient, the other the activation's result again.
  const bool gated = activation_.gated;
  const ValueId du =
      builder_.over(gated ? "d gate and up" : "d up", gated ? before_activation_ : gradient);
  const ValueId activated = builder_.over("activated", gated ? gradient : before_activation_);
  builder_.add(OperationKind::kActivationBackward, {before_activation_, kNoValue, gradient},
               {du, activated}, activation_);
  bias_gradient(builder_, du, up_bias_);
  bias_gradient(builder_, all, down_bias_);
  const bool defers = builder_.defers();
  builder_.weights([&] {
    const ValueId factor = defers ? region_.gathered(added, kBackwardLabel) : all;
    weight_gradient(builder_, factor, activated, down_);
  });
  const Region::Sum sum = region_.start_sum(
      input_gradient(builder_, du, up_, "d mlp norm", {0, "hidden"}), kBackwardLabel);
  const ValueId normal = norm_again(builder_, norm_, x_, stats_, "mlp norm");
  builder_.weights(
      [&] { weight_gradient(builder_, du, region_.gathered(normal, kBackwardLabel), up_); });
  return region_.wait(sum);
}

}  // namespace smp::program
