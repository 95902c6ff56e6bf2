#include "program/layers/experts_over_ranks.h"

#include <algorithm>
#include <cmath>

#include "program/layers/branches.h"

namespace smp::program {
namespace {

int64_t whole_rows(double rows) { return std::llround(rows); }

// On average: what a capacity drops, and what fills it.
double taken_share(const ModelSpec& model) {
  if (model.expert_capacity_factor == 0) return 1;
  return model.pad_experts_to_capacity ? model.expert_capacity_factor
                                       : std::min(1.0, model.expert_capacity_factor);
}

}  // namespace

ExpertsOverRanks::ExpertsOverRanks(ProgramBuilder& builder)
    : builder_(builder),
      region_(builder, builder.call().kinds.mlp),
      gated_(is_gated(builder.model().mlp)),
      norm_(branch_norm_parts(builder, "mlp_norm")) {
  const ModelSpec& model = builder.model();
  const model::LayerCall& call = builder.call();
  // Rows of one sample, so that those of several are as many times as many.
  const auto own = static_cast<double>(call.own_tokens()) / static_cast<double>(call.micro_batch);
  const auto chosen = static_cast<double>(model.experts_per_token);
  const auto cut = static_cast<double>(call.expert_tensor_degree);
  // Ranks that cut an expert gather their tokens. Those with whole sequences have the same ones.
  const double gathered = call.sequence_parallel ? cut : 1;
  sent_ = call.micro_batch * whole_rows(own * chosen);
  received_ = call.micro_batch * whole_rows(call.fullest_experts * own * chosen * gathered);
  width_ = std::max<int64_t>(1, model.expert_ffn_hidden_size / call.expert_tensor_degree);
  experts_ = {.count = std::max<int64_t>(1, model.num_experts / call.expert_degree),
              .tokens = received_,
              .per_token = model.experts_per_token,
              .activation = activation_of(model),
              .expected_rows = taken_share(model) * static_cast<double>(call.tokens()) * chosen *
                               cut / static_cast<double>(call.tensor_degree)};
}

ValueId ExpertsOverRanks::expert_matrix(const std::string& first, const std::string& last,
                                        int64_t rows, int64_t cols) {
  const ValueId weight = builder_.parameters("mlp.experts." + first, "mlp.experts." + last);
  const Shape shape{{experts_.count * rows, "out"}, {cols, "in"}};
  std::vector<Value>& values = builder_.program().values;
  for (const ValueId id : {weight, builder_.gradient_of(weight)}) {
    values[static_cast<size_t>(id)].shape = shape;
  }
  return weight;
}

ValueId ExpertsOverRanks::expert_product(ValueId x, ValueId weight, const std::string& name,
                                         int64_t cols) {
  const ValueId y = builder_.made(name, {{received_, "rows"}, {cols, ""}}, builder_.dtype());
  builder_.add(OperationKind::kExpertProduct, {x, weight, kNoValue}, {y}, experts_);
  return y;
}

ValueId ExpertsOverRanks::exchanged(ValueId x, int64_t rows, const std::string& name) {
  const ValueId y =
      builder_.made(name, {{rows, "rows"}, builder_.value(x).shape[1]}, builder_.dtype());
  builder_.add(OperationKind::kAllToAll, {x}, {y}, MessageAttributes{"expert.forward"});
  return y;
}

ValueId ExpertsOverRanks::routed(ValueId y) {
  const ModelSpec& model = builder_.model();
  const Dim tokens{builder_.call().own_tokens(), "tokens"};
  const Dim chosen{model.experts_per_token, "chosen"}, all{model.num_experts, "experts"};
  const DType wide = builder_.wide_dtype();
  const ValueId scores = builder_.made("scores", {tokens, all}, wide);
  builder_.add(OperationKind::kRouterScores, {y, builder_.parameter("mlp.router.weight")},
               {scores});
  const ValueId probabilities = builder_.made("probabilities", {tokens, all}, wide);
  const ValueId experts = builder_.made("chosen experts", {tokens, chosen}, DType::kI32);
  const ValueId weights = builder_.made("expert weights", {tokens, chosen}, wide);
  const ValueId by_expert = builder_.made("weights by expert", {tokens, all}, wide);
  builder_.add(
      OperationKind::kRoute, {scores, kNoValue},
      {probabilities, experts, weights, kNoValue, by_expert},
      RouterAttributes{.experts = model.num_experts, .experts_per_token = model.experts_per_token});
  const ValueId sorted =
      builder_.made("sorted", {{sent_, "rows"}, builder_.value(y).shape[1]}, builder_.dtype());
  builder_.add(OperationKind::kDispatch, {y, experts, kNoValue}, {sorted}, experts_);
  const ValueId received = exchanged(sorted, received_, "dispatched");

  const int64_t h = model.hidden_size, columns = gated_ ? 2 * width_ : width_;
  const ValueId up = expert_product(
      received, expert_matrix(gated_ ? "gate.weight" : "up.weight", "up.weight", columns, h),
      gated_ ? "experts gate and up" : "experts up", columns);
  const ValueId activated =
      builder_.made("activated", {{received_, "rows"}, {width_, "ffn"}}, builder_.dtype());
  builder_.add(OperationKind::kExpertActivation, {up, kNoValue, weights, experts, kNoValue},
               {activated}, experts_);
  const ValueId down = expert_product(
      activated, expert_matrix("down.weight", "down.weight", h, width_), "experts down", h);
  const ValueId returned = exchanged(down, sent_, "returned");
  const ValueId sum = builder_.made_like("experts combined", y);
  builder_.add(OperationKind::kCombine, {returned, experts}, {sum});
  return sum;
}

// An expert for all tokens, of all tensor ranks.
ValueId ExpertsOverRanks::shared(ValueId y) {
  const int64_t parts = region_.degree();
  const std::string name = "mlp.shared_expert.";
  const ValueId down = builder_.parameter(name + "down.weight");
  const ValueId up = product(
      builder_, region_.gathered(y, kForwardLabel),
      builder_.parameters(name + (gated_ ? "gate.weight" : "up.weight"), name + "up.weight"),
      gated_ ? "shared gate and up" : "shared up", {0, "ffn", parts});
  const ValueId hidden = builder_.made(
      "shared activated", region_.all_tokens({builder_.value(down).shape[1].size, "ffn", parts}),
      builder_.dtype());
  builder_.add(OperationKind::kActivation, {up, kNoValue}, {hidden}, experts_.activation);
  return region_.summed(product(builder_, hidden, down, "shared down", {0, "hidden"}),
                        kForwardLabel);
}

ValueId ExpertsOverRanks::forward(ValueId x, ValueId residual, ValueId) {
  const ValueId y = norm(builder_, norm_, x, "mlp norm").y;
  ValueId sum = routed(y);
  if (builder_.model().shared_expert_ffn_hidden_size > 0) {
    const ValueId both = builder_.made_like("experts and shared expert", sum);
    builder_.add(OperationKind::kAdd, {sum, shared(y)}, {both});
    sum = both;
  }
  return add_branch(builder_, "mlp_norm", residual, sum, kNoValue,
                    hidden_dropout(builder_, region_, DropoutSite::kMlpOutput), "x + experts");
}

}  // namespace smp::program
