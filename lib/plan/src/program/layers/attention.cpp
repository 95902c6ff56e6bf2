#include <algorithm>
#include <iterator>
#include <utility>

#include "program/layers/branches.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::program {
namespace {

RotaryAttributes rotary_of(const ModelSpec& model, int64_t dim, int64_t sequence) {
  if (model.position_embedding != PositionKind::kRotary) return {};
  RotaryAttributes rotary{.dim = dim,
                          .theta = model.rope_theta,
                          .scaling = model.rope_scaling,
                          .factor = model.rope_scaling_factor,
                          .low_freq_factor = model.rope_low_freq_factor,
                          .high_freq_factor = model.rope_high_freq_factor,
                          .original_positions = static_cast<double>(model.rope_original_positions),
                          .beta_fast = model.rope_beta_fast,
                          .beta_slow = model.rope_beta_slow,
                          .truncates = model.rope_truncate,
                          .attention_factor = model::rope_attention_factor(model)};
  const std::vector<double>& factors =
      sequence > model.rope_original_positions ? model.rope_long_factors : model.rope_short_factors;
  const size_t pairs = std::min(factors.size(), std::size(rotary.pair_factors));
  std::transform(factors.begin(), factors.begin() + static_cast<std::ptrdiff_t>(pairs),
                 rotary.pair_factors, [](double factor) { return static_cast<float>(factor); });
  return rotary;
}

}  // namespace

AttentionAttributes attention_of(const ProgramBuilder& builder, const Region& region, bool causal,
                                 int64_t rotary_dim) {
  const ModelSpec& model = builder.model();
  const model::LayerCall& call = builder.call();
  AttentionAttributes attention;
  attention.batch = call.micro_batch;
  const model::ContextPlace& context = call.context;
  attention.sequence = call.sequence_length * context.exchange;
  attention.context_degree = context.ring;
  attention.slices = call.attended();
  attention.keys = call.sequence_length * context.degree();
  attention.causal = causal;
  const bool has_window = causal && model::has_window(model, builder.layer());
  attention.window = has_window ? model.sliding_window : 0;
  // A window over all keys is no restriction, and attention without a window is faster.
  if (attention.window >= attention.keys) attention.window = 0;
  const int64_t heads = model.num_heads / region.degree();
  attention.heads = heads / context.exchange;
  attention.first_sink = context.exchange_rank * attention.heads;
  attention.first_head = region.rank() * heads + attention.first_sink;
  attention.scale = model::score_scale(model);
  attention.rotary = rotary_of(model, rotary_dim, attention.keys);
  attention.weight_dropout = {.share = model.attention_dropout,
                              .site = DropoutSite::kAttention,
                              .sample_rows = attention.sequence};
  return attention;
}

Shape result_shape(const AttentionAttributes& attention, int64_t parts) {
  return {{attention.batch * attention.sequence, "tokens"},
          {attention.heads * attention.value_width(), "heads", parts}};
}

ValueId attended_gradient(ProgramBuilder& builder, const Region& region, ValueId dy,
                          const AttentionOutput& output) {
  const ValueId added = dropped(builder, dy, output.dropout);
  const ValueId all = region.gathered(added, kBackwardLabel);
  bias_gradient(builder, all, output.bias);
  const bool defers = builder.defers();
  builder.weights([&] {
    const ValueId factor = defers ? region.gathered(added, kBackwardLabel) : all;
    weight_gradient(builder, factor, output.attended, output.weight);
  });
  return input_gradient(builder, all, output.weight, "d " + builder.value(output.attended).name,
                        {0, "heads", region.degree()});
}

AttentionBranch::AttentionBranch(ProgramBuilder& builder, std::string name, bool causal,
                                 bool reads_encoder_output)
    : builder_(builder),
      name_(std::move(name)),
      causal_(causal),
      reads_encoder_output_(reads_encoder_output),
      region_(builder, builder.call().kinds.attention),
      norm_(branch_norm_parts(builder, name_ + "_norm")),
      all_heads_norms_(builder, region_, name_),
      q_norm_(all_heads_norms_.exist() ? NormParts{}
                                       : program::norm_parts(builder, name_ + ".q_norm")),
      k_norm_(all_heads_norms_.exist() ? NormParts{}
                                       : program::norm_parts(builder, name_ + ".k_norm")),
      sinks_(builder.parameter(name_ + ".sinks")),
      bias_(builder.parameters(name_ + ".q.bias",
                               name_ + (reads_encoder_output ? ".q.bias" : ".v.bias"))),
      projection_(reads_encoder_output
                      ? builder.parameter(name_ + ".q.weight")
                      : builder.parameters(name_ + ".q.weight", name_ + ".v.weight")),
      kv_projection_(reads_encoder_output
                         ? builder.parameters(name_ + ".k.weight", name_ + ".v.weight")
                         : kNoValue),
      kv_bias_(reads_encoder_output ? builder.parameters(name_ + ".k.bias", name_ + ".v.bias")
                                    : kNoValue),
      output_(builder.parameter(name_ + ".output.weight")),
      output_bias_(builder.parameter(name_ + ".output.bias")) {}

AttentionAttributes AttentionBranch::attributes(const AttentionSides& sides) const {
  const ModelSpec& model = builder_.model();
  AttentionAttributes attention = attention_of(builder_, region_, causal_, rotary_dim_of(model));
  attention.kv_heads = std::max<int64_t>(1, model.num_kv_heads / region_.degree()) /
                       builder_.call().context.exchange;
  attention.head_dim = model.head_dim;
  attention.relative_buckets = sides.table == kNoValue ? 0 : model::kRelativeBuckets;
  attention.has_head_norms = q_norm_.weight != kNoValue;
  attention.centered_norms = model.norm == NormKind::kLayerNorm;
  attention.norm_epsilon = model.norm_epsilon;
  if (reads_encoder_output_) attention.weight_dropout.site = DropoutSite::kCrossAttention;
  return attention;
}

std::vector<ValueId> AttentionBranch::inputs(ValueId packed, ValueId kv,
                                             const AttentionSides& sides) const {
  return {packed,         kv,           kNoValue,    q_norm_.weight, q_norm_.bias,
          k_norm_.weight, k_norm_.bias, sides.table, sinks_};
}

DropoutAttributes AttentionBranch::output_dropout() const {
  return hidden_dropout(
      builder_, region_,
      reads_encoder_output_ ? DropoutSite::kCrossAttentionOutput : DropoutSite::kAttentionOutput);
}

ValueId AttentionBranch::forward(ValueId x, const AttentionSides& sides) {
  const AttentionAttributes attention = attributes(sides);
  const int64_t parts = region_.degree();
  normed_ = norm(builder_, norm_, x, name_ + " norm");
  packed_ = product(builder_, region_.gathered(normed_.y, kForwardLabel), projection_,
                    name_ + (reads_encoder_output_ ? " q" : " qkv"), {0, "heads", parts});
  if (reads_encoder_output_) {
    kv_ = product(builder_, region_.gathered(sides.encoder_output, kForwardLabel), kv_projection_,
                  name_ + " kv", {0, "heads", parts});
  }
  packed_ = add_bias(builder_, packed_, bias_);
  if (reads_encoder_output_) kv_ = add_bias(builder_, kv_, kv_bias_);
  given_ = builder_.made(name_ + " result", result_shape(attention, parts), builder_.dtype());
  log_sums_ = builder_.made(name_ + " log sums",
                            {{attention.batch * attention.heads * attention.sequence, "rows"}},
                            builder_.wide_dtype());
  const HeadExchange exchange(builder_, attention);
  exchanged_ = exchange.packed_to_heads(
      all_heads_norms_.exist() ? all_heads_norms_.forward(packed_) : packed_, kContextForward);
  builder_.add(OperationKind::kAttention, inputs(exchanged_, kv_, sides), {given_, log_sums_},
               attention);
  attended_ = exchange.result_to_tokens(given_, kContextForward);
  const ValueId y = region_.summed(
      product(builder_, attended_, output_, name_ + " output", {0, "hidden"}), kForwardLabel);
  return add_branch(builder_, name_ + "_norm", x, y, output_bias_, output_dropout(),
                    "x + " + name_);
}

ValueId AttentionBranch::backward(ValueId dy, ValueId x, const AttentionSides& sides,
                                  AttentionSides& gradients) {
  const ValueId attended = attended_gradient(builder_, region_, dy,
                                             {attended_, output_, output_bias_, output_dropout()});
  const auto [packed, kv] = backward_heads(attended, sides, gradients);

  const Region::Sum sum = region_.start_sum(
      input_gradient(builder_, packed, projection_, "d " + name_ + " norm", {0, "hidden"}),
      kBackwardLabel);
  bias_gradient(builder_, packed, bias_);
  const ValueId normal = norm_again(builder_, norm_, x, normed_.stats, name_ + " norm");
  builder_.weights([&, packed = packed] {
    weight_gradient(builder_, packed, region_.gathered(normal, kBackwardLabel), projection_);
  });
  if (reads_encoder_output_) backward_encoder_output(sides.encoder_output, kv, gradients);
  return region_.wait(sum);
}

// What was kept of queries, keys and values, or normed again, becomes their gradients.
std::pair<ValueId, ValueId> AttentionBranch::backward_heads(ValueId attended_gradient,
                                                            const AttentionSides& sides,
                                                            AttentionSides& gradients) {
  const AttentionAttributes attention = attributes(sides);
  const HeadExchange exchange(builder_, attention);
  const ValueId heads = all_heads_norms_.exist()
                            ? exchange.packed_to_heads(all_heads_norms_.again(), kContextBackward)
                            : exchanged_;
  ValueId packed_gradient = builder_.over("d " + builder_.value(heads).name, heads);
  ValueId kv_gradient = kNoValue, table = kNoValue, head_norms = kNoValue, sinks = kNoValue;
  if (kv_ != kNoValue) kv_gradient = builder_.over("d " + name_ + " kv", kv_);
  if (sides.table != kNoValue) {
    table =
        builder_.made("d table, wide", builder_.value(sides.table).shape, builder_.wide_dtype());
  }
  if (attention.has_head_norms) {
    head_norms = builder_.made(
        "d head norms", {{attention.centered_norms ? 4 : 2, ""}, {attention.head_dim, "head"}},
        builder_.wide_dtype());
  }
  if (sinks_ != kNoValue) {
    sinks = builder_.made("d sinks, wide", builder_.value(sinks_).shape, builder_.wide_dtype());
  }
  std::vector<ValueId> operands = inputs(heads, kv_, sides);
  operands.insert(
      operands.end(),
      {given_, exchange.result_to_heads(attended_gradient, kContextBackward), log_sums_});
  builder_.add(OperationKind::kAttentionBackward, operands,
               {packed_gradient, kv_gradient, table, head_norms, sinks}, attention);
  if (sinks != kNoValue) {
    builder_.add(OperationKind::kAccumulate, {sinks}, {}, {}, {builder_.gradient_of(sinks_)});
  }
  packed_gradient = exchange.packed_to_tokens(packed_gradient, kContextBackward);
  if (all_heads_norms_.exist()) packed_gradient = all_heads_norms_.backward(packed_gradient);
  if (table != kNoValue) {
    if (builder_.is_narrow()) {
      const ValueId narrow = builder_.made_like("d table", sides.table);
      builder_.add(OperationKind::kCast, {table}, {narrow});
      table = narrow;
    }
    gradients.table = add_to(builder_, gradients.table, table);
  }
  // Every tensor rank has a copy of the head norms' parameters and the gradient of its own heads.
  if (head_norms != kNoValue) {
    head_norms = region_.all_reduced(head_norms, "tensor.head_norms");
    builder_.add(OperationKind::kAccumulate, {head_norms}, {}, {},
                 {builder_.gradient_of(q_norm_.weight), builder_.gradient_of(k_norm_.weight),
                  builder_.gradient_of(q_norm_.bias), builder_.gradient_of(k_norm_.bias)});
  }
  return {packed_gradient, kv_gradient};
}

// The gradient of keys' and values' weights is never deferred: its factor, the encoder output,
// belongs to other blocks as well.
void AttentionBranch::backward_encoder_output(ValueId encoder_output, ValueId kv,
                                              AttentionSides& gradients) {
  ValueId part = input_gradient(builder_, kv, kv_projection_, "d encoder output", {0, "hidden"});
  // Without sequence parallelism `part` is this rank's addend of a sum that the first decoder block
  // takes. With it the ranks have different tokens, so the sum must be taken here.
  if (region_.splits_tokens()) part = region_.summed(part, kBackwardLabel);
  gradients.encoder_output = add_to(builder_, gradients.encoder_output, part);
  bias_gradient(builder_, kv, kv_bias_);
  weight_gradient(builder_, kv, region_.gathered(encoder_output, kBackwardLabel), kv_projection_);
}

}  // namespace smp::program
