#include <algorithm>
#include <cmath>

#include "program/layers/branches.h"
#include "smp/plan/base/check.h"

// A router and its experts, and an expert for all tokens if there is one. All tensor ranks compute
// the same scores of all tokens. If they share the experts, each computes those that it has for all
// tokens. If more ranks do (expert parallelism), each sends its part of the tokens to the ranks of
// their experts, and these travel while the shared expert works. Either way the outputs are summed
// as those of any row-parallel matrix.
namespace smp::program {
namespace {

constexpr std::string_view kRouterLabel = "tensor.router", kExpertForward = "expert.forward",
                           kExpertBackward = "expert.backward";

// Tokens of a microbatch that an expert takes; 0 = all.
int64_t capacity_of(const ModelSpec& model, int64_t tokens) {
  if (model.expert_capacity_factor == 0) return 0;
  const double even = static_cast<double>(tokens * model.experts_per_token) /
                      static_cast<double>(model.num_experts);
  return std::min(tokens, static_cast<int64_t>(std::ceil(model.expert_capacity_factor * even)));
}

RouterAttributes router_of(const ModelSpec& model, const model::LayerCall& call) {
  const bool by_sequence = model.router_balance_over == BalanceOver::kSequence;
  return {.experts = model.num_experts,
          .experts_per_token = model.experts_per_token,
          .kind = model.router,
          .normalizes = model.normalize_expert_weights,
          .scale = model.routed_scaling_factor,
          .groups = model.expert_groups,
          .groups_per_token = model.expert_groups_per_token,
          .capacity = capacity_of(model, call.tokens()),
          .balance_loss = model.router_balance_loss,
          .balance_tokens =
              (by_sequence ? call.sequence_length : call.tokens()) * call.context.degree(),
          .context = call.context,
          .balances_step = model.router_balance_over == BalanceOver::kBatch,
          .z_loss = model.router_z_loss};
}

}  // namespace

ExpertsBranch::ExpertsBranch(ProgramBuilder& builder)
    : builder_(builder),
      region_(builder, builder.call().kinds.mlp),
      router_(router_of(builder.model(), builder.call())),
      exchange_(builder, region_, router_),
      activation_(activation_of(builder.model())),
      norm_(branch_norm_parts(builder, "mlp_norm")),
      router_weight_(builder.parameter("mlp.router.weight")),
      router_bias_(builder.parameter("mlp.router.bias")),
      correction_bias_(builder.parameter("mlp.router.correction_bias")),
      routed_(matrices("mlp.experts", ".weight")),
      biases_(matrices("mlp.experts", ".bias")),
      shared_(matrices("mlp.shared_expert", ".weight")),
      shared_gate_(builder.parameter("mlp.shared_expert_gate.weight")) {
  SMP_CHECK(!builder.model().shared_norm);
  SMP_CHECK(shared_.up == kNoValue || !builder.model().mlp_bias);
  const int64_t tokens = builder.call().tokens();
  if (exchange_.exists()) {
    const double rows = static_cast<double>(tokens * router_.experts_per_token) /
                        static_cast<double>(region_.degree());
    experts_ = {.count = exchange_.experts(),
                .tokens = exchange_.tokens(),
                .per_token = router_.experts_per_token,
                .activation = activation_,
                .expected_rows = rows};
    rows_ = exchange_.rows();
    return;
  }
  experts_ = {.first = mesh::part_begin(router_.experts, region_.degree(), region_.rank()),
              .count = mesh::part_size(router_.experts, region_.degree(), region_.rank()),
              .tokens = router_.capacity > 0 ? router_.capacity : tokens,
              .per_token = router_.experts_per_token,
              .activation = activation_,
              .expected_rows = static_cast<double>(tokens * router_.experts_per_token) *
                               static_cast<double>(mesh::part_size(
                                   router_.experts, region_.degree(), region_.rank())) /
                               static_cast<double>(router_.experts)};
  rows_ = std::min(tokens * std::min(router_.experts_per_token, experts_.count),
                   experts_.count * experts_.tokens);
}

ExpertsBranch::Matrices ExpertsBranch::matrices(const std::string& name, const std::string& kind) {
  return {activation_.gated ? builder_.parameter(name + ".gate" + kind) : kNoValue,
          builder_.parameter(name + ".up" + kind), builder_.parameter(name + ".down" + kind)};
}

std::vector<ValueId> ExpertsBranch::product_operands(ValueId x, ValueId weight, ValueId bias,
                                                     bool weighted) const {
  std::vector<ValueId> operands{x, weight, ends_};
  if (bias == kNoValue) return operands;
  operands.push_back(bias);
  if (weighted) operands.insert(operands.end(), {row_weights_, rows_by_expert_});
  return operands;
}

ValueId ExpertsBranch::expert_product(const std::vector<ValueId>& operands, const std::string& name,
                                      Dim cols) {
  cols.size = builder_.value(operands[1]).shape[0].size / experts_.count;
  const ValueId y =
      builder_.made(name, {builder_.value(operands[0]).shape[0], cols}, builder_.dtype());
  builder_.add(OperationKind::kExpertProduct, operands, {y}, experts_);
  return y;
}

ValueId ExpertsBranch::expert_input_gradient(ValueId dy, ValueId weight, const std::string& name,
                                             Dim cols) {
  cols.size = builder_.value(weight).shape[1].size;
  const ValueId dx = builder_.made(name, {builder_.value(dy).shape[0], cols}, builder_.dtype());
  builder_.add(OperationKind::kExpertInputGradient, {dy, weight, ends_}, {dx}, experts_);
  return dx;
}

ValueId ExpertsBranch::dispatched(ValueId x, const std::string& name) {
  const ValueId y =
      builder_.made(name, {{rows_, "rows"}, builder_.value(x).shape[1]}, builder_.dtype());
  builder_.add(OperationKind::kDispatch, {x, rows_by_expert_, ends_}, {y}, experts_);
  return y;
}

ValueId ExpertsBranch::combined(ValueId x, const std::string& name) {
  const ValueId y =
      builder_.made(name, region_.all_tokens(builder_.value(x).shape[1]), builder_.dtype());
  builder_.add(OperationKind::kCombine, {x, places_}, {y});
  return y;
}

// The sum of what the experts have put out for each token, and of what `shared` adds, which it
// makes while rows travel. It calls its argument with each addend.
template <typename Shared>
ValueId ExpertsBranch::from_experts(ValueId rows, const std::string& name, std::string_view label,
                                    const Shared& shared) {
  if (!exchange_.exists()) {
    ValueId y = combined(rows, name);
    shared([&](ValueId addend) { y = add_to(builder_, y, addend); });
    return y;
  }
  const auto back = exchange_.start_to_tokens(rows, label);
  ValueId sum = kNoValue;
  shared([&](ValueId addend) { sum = sum == kNoValue ? addend : add_to(builder_, sum, addend); });
  const ValueId y = combined(exchange_.at_tokens(back), name);
  return sum == kNoValue ? y : add_to(builder_, y, sum);
}

void ExpertsBranch::route(ValueId all) {
  const Dim tokens{builder_.call().tokens(), "tokens"}, chosen{router_.experts_per_token, "chosen"};
  const DType wide = builder_.wide_dtype();
  const ValueId scores = builder_.made("scores", {tokens, {router_.experts, "experts"}}, wide);
  builder_.add(OperationKind::kRouterScores, {all, router_weight_, router_bias_}, {scores});
  probabilities_ = builder_.over("probabilities", scores);
  chosen_ = builder_.made("chosen experts", {tokens, chosen}, DType::kI32);
  weights_ = builder_.made("expert weights", {tokens, chosen}, wide);
  if (router_.z_loss > 0) log_sums_ = builder_.made("log sums", {tokens}, wide);
  builder_.add(OperationKind::kRoute, {scores, correction_bias_},
               {probabilities_, chosen_, weights_, log_sums_}, router_);
  if (exchange_.exists()) {
    const ExpertExchange::Sorted sorted = exchange_.sort(chosen_);
    ends_ = sorted.ends;
    places_ = sorted.places;
    row_weights_ = exchange_.weights_to_experts(weights_);
  } else {
    rows_by_expert_ = builder_.made("rows by expert", {{rows_, "rows"}}, DType::kI32);
    ends_ = builder_.made("ends", {{experts_.count, "experts", region_.degree()}}, DType::kI32);
    places_ = builder_.made("places", {tokens, chosen}, DType::kI32);
    builder_.add(OperationKind::kSortByExpert, {chosen_}, {rows_by_expert_, ends_, places_},
                 experts_);
    row_weights_ = weights_;
  }
  if (shared_gate_ == kNoValue) return;
  const ValueId gate_score = builder_.made("shared gate", {tokens, {1, ""}}, wide);
  builder_.add(OperationKind::kRouterScores, {all, shared_gate_}, {gate_score});
  shared_weights_ = builder_.over("shared weights", gate_score);
  builder_.add(OperationKind::kSigmoid, {gate_score}, {shared_weights_});
}

// The products before the activation, which selective recompute drops.
void ExpertsBranch::routed_products(ValueId x, bool again) {
  const auto routed = [&](ValueId weight, ValueId bias, ValueId& result, const std::string& name) {
    if (weight == kNoValue) return;
    const std::vector<ValueId> operands = product_operands(x, weight, bias, false);
    if (again) {
      builder_.add(OperationKind::kExpertProduct, operands, {result}, experts_);
    } else {
      result = expert_product(operands, name, {0, "ffn"});
    }
  };
  routed(routed_.gate, biases_.gate, gate_, "experts gate");
  routed(routed_.up, biases_.up, up_, "experts up");
}

void ExpertsBranch::shared_products(ValueId all, bool again) {
  const int64_t parts = region_.degree();
  const auto shared = [&](ValueId weight, ValueId& result, const std::string& name) {
    if (weight == kNoValue) return;
    if (again) {
      builder_.add(OperationKind::kProduct, {all, weight}, {result});
    } else {
      result = product(builder_, all, weight, name, {0, "ffn", parts});
    }
  };
  shared(shared_.gate, shared_gate_result_, "shared gate product");
  shared(shared_.up, shared_up_, "shared up");
}

ValueId ExpertsBranch::forward(ValueId x, ValueId residual, ValueId stats) {
  SMP_CHECK(stats == kNoValue);
  x_ = x;
  const Normed normed = norm(builder_, norm_, x, "mlp norm");
  stats_ = normed.stats;
  const ValueId all = region_.gathered(normed.y, kForwardLabel);
  route(all);
  if (exchange_.exists()) {
    const auto rows = exchange_.start_to_experts(all, "dispatched", kExpertForward);
    shared_products(all, false);
    dispatched_ = exchange_.at_experts(rows);
    routed_products(dispatched_, false);
  } else {
    routed_products(dispatched(all, "dispatched"), false);
    shared_products(all, false);
  }
  const ValueId activated = builder_.made_like("activated", up_);
  builder_.add(OperationKind::kExpertActivation, {up_, gate_, row_weights_, rows_by_expert_, ends_},
               {activated}, experts_);
  const ValueId down = expert_product(product_operands(activated, routed_.down, biases_.down, true),
                                      "experts down", {0, "hidden"});
  const ValueId y = from_experts(down, "experts combined", kExpertForward, [&](const auto& add) {
    if (shared_.up == kNoValue) return;
    const ValueId hidden = builder_.made_like("shared activated", shared_up_);
    builder_.add(OperationKind::kExpertActivation,
                 {shared_up_, shared_gate_result_, shared_weights_, kNoValue, kNoValue}, {hidden},
                 experts_);
    add(product(builder_, hidden, shared_.down, "shared down", {0, "hidden"}));
  });
  return add_branch(builder_, "mlp_norm", residual, region_.summed(y, kForwardLabel), kNoValue,
                    hidden_dropout(builder_, region_, DropoutSite::kMlpOutput), "x + experts");
}

void ExpertsBranch::rematerialize() {
  if (exchange_.exists()) routed_products(dispatched_, true);
  if (exchange_.exists() && shared_.up == kNoValue) return;
  const ValueId normal = norm_again(builder_, norm_, x_, stats_, "mlp norm");
  const ValueId all = region_.gathered(normal, kForwardLabel);
  if (!exchange_.exists()) routed_products(dispatched(all, "dispatched"), true);
  shared_products(all, true);
}

// Gradients of the first products, and the activation again.
ExpertsBranch::Hidden ExpertsBranch::activation_backward(ValueId up, ValueId gate, ValueId weights,
                                                         ValueId rows, ValueId ends, ValueId dy,
                                                         const std::string& name) {
  Hidden hidden;
  hidden.d_up = builder_.over("d " + name + " up", up);
  if (gate != kNoValue) hidden.d_gate = builder_.over("d " + name + " gate", gate);
  hidden.activated = builder_.over(name + " activated", dy);
  if (weights != kNoValue) hidden.d_weights = builder_.made_like("d " + name + " weights", weights);
  builder_.add(OperationKind::kExpertActivationBackward, {up, gate, weights, rows, ends, dy},
               {hidden.d_up, hidden.d_gate, hidden.activated, hidden.d_weights}, experts_);
  return hidden;
}

void ExpertsBranch::expert_weight_gradient(ValueId dy, ValueId x, ValueId weight) {
  if (weight == kNoValue) return;
  builder_.add(OperationKind::kExpertWeightGradient, {dy, x, ends_}, {}, experts_,
               {builder_.gradient_of(weight)});
}

// Of the biases of the experts, of which a model has all or none. That of the second matrix is
// weighed as the row is.
void ExpertsBranch::bias_gradients(ValueId d_down, Hidden& routed) {
  if (biases_.up == kNoValue) return;
  const auto add = [&](const std::vector<ValueId>& operands, const std::vector<ValueId>& outputs,
                       ValueId bias) {
    builder_.add(OperationKind::kExpertBiasGradient, operands, outputs, experts_,
                 {builder_.gradient_of(bias)});
  };
  const ValueId d_weights = builder_.over("d expert weights", routed.d_weights);
  add({d_down, ends_, biases_.down, row_weights_, rows_by_expert_, routed.d_weights}, {d_weights},
      biases_.down);
  routed.d_weights = d_weights;
  add({routed.d_up, ends_}, {}, biases_.up);
  if (biases_.gate != kNoValue) add({routed.d_gate, ends_}, {}, biases_.gate);
}

// The gradient of what the router and the shared gate have read, of all tokens and whole on each
// rank. Adds the gradients of their weights.
ValueId ExpertsBranch::router_backward(ValueId all, ValueId d_weights, ValueId d_shared_weights) {
  const auto input_gradient = [&](ValueId d_scores, ValueId weight, const std::string& name) {
    builder_.add(OperationKind::kRouterWeightGradient, {d_scores, all}, {}, {},
                 {builder_.gradient_of(weight)});
    const ValueId dx = builder_.made_like(name, all);
    builder_.add(OperationKind::kRouterInputGradient, {d_scores, weight}, {dx});
    return dx;
  };
  builder_.add(OperationKind::kExpertLoad, {chosen_}, {}, router_,
               {builder_.gradient_of(correction_bias_)});
  const ValueId d_scores = builder_.over("d scores", probabilities_);
  builder_.add(
      OperationKind::kRouteBackward,
      {probabilities_, chosen_, weights_, region_.all_reduced(d_weights, kRouterLabel), log_sums_},
      {d_scores}, router_);
  bias_gradient(builder_, d_scores, router_bias_);
  const ValueId dx = input_gradient(d_scores, router_weight_, "d mlp norm of the router");
  if (shared_gate_ == kNoValue) return dx;
  const ValueId summed = region_.all_reduced(d_shared_weights, kRouterLabel);
  const ValueId d_gate = builder_.over("d shared gate", summed);
  builder_.add(OperationKind::kSigmoidBackward, {shared_weights_, summed}, {d_gate});
  return add_to(builder_, dx,
                input_gradient(d_gate, shared_gate_, "d mlp norm of the shared gate"));
}

ValueId ExpertsBranch::backward(ValueId dy) {
  const ValueId added =
      dropped(builder_, dy, hidden_dropout(builder_, region_, DropoutSite::kMlpOutput));
  const ValueId all_dy = region_.gathered(added, kBackwardLabel);
  const bool defers = builder_.defers();

  // The second matrices.
  Hidden shared;
  const auto shared_down = [&] {
    if (shared_.up == kNoValue) return;
    shared =
        activation_backward(shared_up_, shared_gate_result_, shared_weights_, kNoValue, kNoValue,
                            input_gradient(builder_, all_dy, shared_.down, "d shared activated",
                                           {0, "ffn", region_.degree()}),
                            "shared");
    builder_.weights([&] {
      const ValueId factor = defers ? region_.gathered(added, kBackwardLabel) : all_dy;
      weight_gradient(builder_, factor, shared.activated, shared_.down);
    });
  };
  ValueId dispatched_dy = kNoValue;
  if (exchange_.exists()) {
    const auto rows = exchange_.start_to_experts(all_dy, "d experts down", kExpertBackward);
    shared_down();
    dispatched_dy = exchange_.at_experts(rows);
  } else {
    dispatched_dy = dispatched(all_dy, "d experts down");
  }
  Hidden routed = activation_backward(
      up_, gate_, row_weights_, rows_by_expert_, ends_,
      expert_input_gradient(dispatched_dy, routed_.down, "d activated", {0, "ffn"}), "experts");
  builder_.weights([&] { expert_weight_gradient(dispatched_dy, routed.activated, routed_.down); });
  bias_gradients(dispatched_dy, routed);
  if (exchange_.exists()) {
    routed.d_weights = exchange_.weights_to_tokens(routed.d_weights);
  } else {
    shared_down();
  }

  // The first ones. The router's part is whole on each rank: one adds it to the sum.
  const ValueId normal = norm_again(builder_, norm_, x_, stats_, "mlp norm");
  const ValueId all = region_.gathered(normal, kBackwardLabel);
  ValueId d_rows = expert_input_gradient(routed.d_up, routed_.up, "d dispatched", {0, "hidden"});
  if (routed_.gate != kNoValue) {
    d_rows = add_to(
        builder_, d_rows,
        expert_input_gradient(routed.d_gate, routed_.gate, "d dispatched by gate", {0, "hidden"}));
  }
  ValueId dx = from_experts(d_rows, "d mlp norm", kExpertBackward, [&](const auto& add) {
    if (shared_.up == kNoValue) return;
    add(input_gradient(builder_, shared.d_up, shared_.up, "d mlp norm by shared up",
                       {0, "hidden"}));
    if (shared_.gate == kNoValue) return;
    add(input_gradient(builder_, shared.d_gate, shared_.gate, "d mlp norm by shared gate",
                       {0, "hidden"}));
  });
  const ValueId of_router = router_backward(all, routed.d_weights, shared.d_weights);
  if (region_.rank() == 0) dx = add_to(builder_, dx, of_router);
  const Region::Sum sum = region_.start_sum(dx, kBackwardLabel);
  builder_.weights([&] {
    const bool reads = !exchange_.exists() || shared_.up != kNoValue;
    const ValueId again = defers && reads ? region_.gathered(normal, kBackwardLabel) : all;
    const ValueId x = exchange_.exists() ? dispatched_ : dispatched(again, "dispatched");
    expert_weight_gradient(routed.d_up, x, routed_.up);
    expert_weight_gradient(routed.d_gate, x, routed_.gate);
    if (shared_.up == kNoValue) return;
    weight_gradient(builder_, shared.d_up, again, shared_.up);
    if (shared_.gate != kNoValue) weight_gradient(builder_, shared.d_gate, again, shared_.gate);
  });
  return region_.wait(sum);
}

}  // namespace smp::program
