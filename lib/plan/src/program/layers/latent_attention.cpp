#include "program/layers/branches.h"
#include "smp/plan/base/check.h"

// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1):
//   q             = q_up(norm(q_down(x))), or q_up(x) without a latent of the queries
//   latent, k_rot = kv_down(x)
//   k, v          = kv_up(norm(latent)); k_rot is a part of every head's keys
// The latents' gradients are summed over the ranks that share the heads, so that each rank has the
// whole gradients of the matrices that make them.
namespace smp::program {
namespace {

// In DeepSeek's code, and in transformers, whatever the model's norm_epsilon.
constexpr double kLatentNormEpsilon = 1e-6;

NormParts latent_norm(ProgramBuilder& builder, const std::string& name) {
  NormParts parts = norm_parts(builder, name);
  parts.attributes.epsilon = kLatentNormEpsilon;
  return parts;
}

LatentAttributes widths_of(const ProgramBuilder& builder, const Region& region) {
  const ModelSpec& model = builder.model();
  return {.heads = model.num_heads / region.degree(),
          .plain = model.qk_head_dim,
          .rotary = model.qk_rope_head_dim,
          .value = model.v_head_dim};
}

}  // namespace

LatentAttentionBranch::LatentAttentionBranch(ProgramBuilder& builder, const std::string& name,
                                             bool causal, bool reads_encoder_output)
    : builder_(builder),
      region_(builder, builder.call().kinds.attention),
      whole_(builder, false),
      widths_(widths_of(builder, region_)),
      has_q_latent_(builder.model().q_lora_rank > 0),
      norm_(branch_norm_parts(builder, name + "_norm")),
      q_latent_{latent_norm(builder, name + ".q_down_norm")},
      kv_latent_{latent_norm(builder, name + ".kv_down_norm")},
      q_down_(builder.parameter(name + ".q_down.weight")),
      q_up_(builder.parameter(name + (has_q_latent_ ? ".q_up.weight" : ".q.weight"))),
      kv_down_(builder.parameter(name + ".kv_down.weight")),
      kv_up_(builder.parameter(name + ".kv_up.weight")),
      output_(builder.parameter(name + ".output.weight")),
      output_bias_(builder.parameter(name + ".output.bias")) {
  SMP_CHECK(causal && !reads_encoder_output);
}

AttentionAttributes LatentAttentionBranch::attributes() const {
  AttentionAttributes attention = attention_of(builder_, region_, true, widths_.rotary);
  attention.kv_heads = attention.heads;
  attention.head_dim = widths_.head_dim();
  attention.value_dim = widths_.value;
  return attention;
}

std::vector<ValueId> LatentAttentionBranch::operands() const {
  std::vector<ValueId> operands(9, kNoValue);
  operands.front() = packed_;
  return operands;
}

DropoutAttributes LatentAttentionBranch::output_dropout() const {
  return hidden_dropout(builder_, region_, DropoutSite::kAttentionOutput);
}

// weight * norm(rows)
ValueId LatentAttentionBranch::up(Latent& latent, ValueId rows, ValueId weight,
                                  const std::string& name) {
  latent.rows = rows;
  const Normed normed = norm(builder_, latent.norm, rows, name + " latent norm");
  latent.stats = normed.stats;
  return product(builder_, normed.y, weight, name, {0, "heads", region_.degree()});
}

// The gradient of the latent's rows.
ValueId LatentAttentionBranch::up_backward(const Latent& latent, ValueId dy, ValueId weight,
                                           const std::string& name) {
  const ValueId d_normed = region_.all_reduced(
      input_gradient(builder_, dy, weight, "d " + name + " latent norm", {0, "latent"}),
      kBackwardLabel);
  builder_.weights([&] {
    const ValueId normed =
        norm_again(builder_, latent.norm, latent.rows, latent.stats, name + " latent norm");
    weight_gradient(builder_, dy, normed, weight);
  });
  return norm_backward(builder_, latent.norm, d_normed, latent.rows, latent.stats, kNoValue, false,
                       name + " latent");
}

ValueId LatentAttentionBranch::forward(ValueId x, const AttentionSides& sides) {
  SMP_CHECK(sides.table == kNoValue && sides.encoder_output == kNoValue);
  const AttentionAttributes attention = attributes();
  const int64_t parts = region_.degree(), rank = builder_.model().kv_lora_rank;
  const Normed normed = norm(builder_, norm_, x, "attention norm");
  stats_ = normed.stats;
  const ValueId all = region_.gathered(normed.y, kForwardLabel);
  const ValueId q =
      has_q_latent_
          ? up(q_latent_, product(builder_, all, q_down_, "q latent", {0, "latent"}), q_up_, "q")
          : product(builder_, all, q_up_, "q", {0, "heads", parts});
  const ValueId kv_down = product(builder_, all, kv_down_, "kv down", {0, "latent and rotary"});
  const auto columns = [&](const std::string& name, int64_t count) {
    return builder_.made(name, region_.all_tokens({count, ""}), builder_.dtype());
  };
  const ValueId latent = columns("kv latent", rank);
  const ValueId k_rotary = columns("k rotary", widths_.rotary);
  builder_.add(OperationKind::kSplitColumns, {kv_down}, {latent, k_rotary});
  const ValueId kv = up(kv_latent_, latent, kv_up_, "kv");
  const ValueId packed =
      builder_.made("attention qkv",
                    region_.all_tokens(
                        {widths_.heads * (2 * widths_.head_dim() + widths_.value), "heads", parts}),
                    builder_.dtype());
  builder_.add(OperationKind::kLatentHeads, {q, kv, k_rotary}, {packed}, widths_);
  const HeadExchange exchange(builder_, attention);
  packed_ = exchange.packed_to_heads(packed, kContextForward);
  given_ = builder_.made("attention result", result_shape(attention, parts), builder_.dtype());
  log_sums_ = builder_.made("attention log sums",
                            {{attention.batch * attention.heads * attention.sequence, "rows"}},
                            builder_.wide_dtype());
  builder_.add(OperationKind::kAttention, operands(), {given_, log_sums_}, attention);
  attended_ = exchange.result_to_tokens(given_, kContextForward);
  const ValueId y = region_.summed(
      product(builder_, attended_, output_, "attention output", {0, "hidden"}), kForwardLabel);
  return add_branch(builder_, "attention_norm", x, y, output_bias_, output_dropout(),
                    "x + attention");
}

ValueId LatentAttentionBranch::backward(ValueId dy, ValueId x, const AttentionSides&,
                                        AttentionSides&) {
  const ValueId d_attended = attended_gradient(
      builder_, region_, dy, {attended_, output_, output_bias_, output_dropout()});
  std::vector<ValueId> inputs = operands();
  const HeadExchange exchange(builder_, attributes());
  inputs.insert(inputs.end(),
                {given_, exchange.result_to_heads(d_attended, kContextBackward), log_sums_});
  const ValueId d_heads = builder_.over("d attention qkv", packed_);
  builder_.add(OperationKind::kAttentionBackward, inputs, {d_heads, kNoValue, kNoValue, kNoValue},
               attributes());
  const ValueId d_packed = exchange.packed_to_tokens(d_heads, kContextBackward);

  const int64_t parts = region_.degree(), heads = widths_.heads;
  const auto columns = [&](const std::string& name, Dim dim) {
    return builder_.made(name, region_.all_tokens(dim), builder_.dtype());
  };
  const ValueId d_q = columns("d q", {heads * widths_.head_dim(), "heads", parts});
  const ValueId d_kv = columns("d kv", {heads * (widths_.plain + widths_.value), "heads", parts});
  const ValueId d_k_rotary = columns("d k rotary", {widths_.rotary, ""});
  builder_.add(OperationKind::kLatentHeadsBackward, {d_packed}, {d_q, d_kv, d_k_rotary}, widths_);
  const ValueId d_latent = up_backward(kv_latent_, d_kv, kv_up_, "kv");
  const ValueId d_kv_down =
      columns("d kv down", {builder_.model().kv_lora_rank + widths_.rotary, "latent and rotary"});
  builder_.add(OperationKind::kJoinColumns,
               {d_latent, region_.all_reduced(d_k_rotary, kBackwardLabel)}, {d_kv_down});
  const ValueId d_q_down = has_q_latent_ ? up_backward(q_latent_, d_q, q_up_, "q") : d_q;
  const Region::Sum sum = down_backward(d_q_down, d_kv_down, x);
  return region_.wait(sum);
}

// The gradient of the norm's result, on its way. What comes through a latent is whole on each rank;
// what comes from the heads alone is an addend.
Region::Sum LatentAttentionBranch::down_backward(ValueId d_q, ValueId d_kv_down, ValueId x) {
  const ValueId q_weight = has_q_latent_ ? q_down_ : q_up_;
  ValueId dx = input_gradient(builder_, d_q, q_weight, "d attention norm", {0, "hidden"});
  if (has_q_latent_ || region_.rank() == 0) {
    dx = add_to(
        builder_, dx,
        input_gradient(builder_, d_kv_down, kv_down_, "d attention norm by kv", {0, "hidden"}));
  }
  const Region& region = has_q_latent_ ? whole_ : region_;
  const Region::Sum sum = region.start_sum(dx, kBackwardLabel);
  const ValueId normal = norm_again(builder_, norm_, x, stats_, "attention norm");
  builder_.weights([&] {
    const ValueId all = region_.gathered(normal, kBackwardLabel);
    weight_gradient(builder_, d_q, all, q_weight);
    weight_gradient(builder_, d_kv_down, all, kv_down_);
  });
  return sum;
}

}  // namespace smp::program
