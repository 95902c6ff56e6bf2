#include "program/layers/parts.h"

#include "program/layers/head_exchange.h"
#include "smp/plan/model/hybrid.h"

namespace smp::program {

NormParts norm_parts(ProgramBuilder& builder, const std::string& name) {
  return {builder.parameter(name + ".weight"),
          builder.parameter(name + ".bias"),
          {builder.model().norm == NormKind::kLayerNorm, builder.model().norm_epsilon}};
}

NormParts branch_norm_parts(ProgramBuilder& builder, const std::string& name) {
  return norm_parts(builder, model::is_hybrid(builder.model()) ? "norm" : name);
}

Normed norm(ProgramBuilder& builder, const NormParts& parts, ValueId x, const std::string& name) {
  const Dim rows = builder.value(x).shape[0];
  const ValueId y = builder.made_like(name, x);
  const ValueId stats = builder.made(
      name + " statistics", {rows, {parts.attributes.centered ? 2 : 1, ""}}, builder.wide_dtype());
  builder.add(OperationKind::kNorm, {x, parts.weight, parts.bias}, {y, stats}, parts.attributes);
  return {y, stats};
}

ValueId norm_again(ProgramBuilder& builder, const NormParts& parts, ValueId x, ValueId stats,
                   const std::string& name) {
  const ValueId y = builder.made_like(name, x);
  builder.add(OperationKind::kNormAgain, {x, stats, parts.weight, parts.bias}, {y},
              parts.attributes);
  return y;
}

ValueId norm_backward(ProgramBuilder& builder, const NormParts& parts, ValueId dy, ValueId x,
                      ValueId stats, ValueId residual, bool of_own_tokens,
                      const std::string& name) {
  const ValueId dx = builder.over(gradient_name(name), dy);
  const std::vector<ValueId> gradients{builder.gradient_of(parts.weight),
                                       builder.gradient_of(parts.bias)};
  const std::vector<ValueId> inputs{dy, x, stats, parts.weight, residual};
  if (!of_own_tokens) {
    builder.add(OperationKind::kNormBackward, inputs, {dx}, parts.attributes, gradients);
    return dx;
  }
  const ValueId sums = builder.made(
      "d norm of own tokens", {{parts.attributes.centered ? 2 : 1, ""}, builder.value(x).shape[1]},
      builder.wide_dtype());
  builder.add(OperationKind::kNormBackward, inputs, {dx, sums}, parts.attributes);
  const ValueId summed = builder.over("d norm", sums);
  builder.add(OperationKind::kAllReduce, {sums}, {summed}, MessageAttributes{"tensor.norms"});
  builder.add(OperationKind::kAccumulate, {summed}, {}, {}, gradients);
  return dx;
}

ValueId dropped(ProgramBuilder& builder, ValueId x, const DropoutAttributes& dropout) {
  if (!dropout.is_on()) return x;
  const ValueId y = builder.made_like(builder.value(x).name + " dropped", x);
  builder.add(OperationKind::kDrop, {x}, {y}, dropout);
  return y;
}

ValueId drop_in_place(ProgramBuilder& builder, ValueId x, const DropoutAttributes& dropout) {
  if (!dropout.is_on()) return x;
  const ValueId y = builder.over(builder.value(x).name + " dropped", x);
  builder.add(OperationKind::kDrop, {x}, {y}, dropout);
  return y;
}

DropoutAttributes hidden_dropout(const ProgramBuilder& builder, const Region& region,
                                 DropoutSite site) {
  return {.share = builder.model().hidden_dropout,
          .site = site,
          .sample_rows = builder.call().sequence_length,
          .slices = builder.call().slices(),
          .rows_before = region.first_token()};
}

ValueId product(ProgramBuilder& builder, ValueId x, ValueId weight, const std::string& name,
                Dim cols) {
  cols.size = builder.value(weight).shape[0].size;
  const ValueId y = builder.made(name, {builder.value(x).shape[0], cols}, builder.dtype());
  builder.add(OperationKind::kProduct, {x, weight}, {y});
  return y;
}

ValueId input_gradient(ProgramBuilder& builder, ValueId dy, ValueId weight, const std::string& name,
                       Dim cols, double scale, ValueId factor) {
  cols.size = builder.value(weight).shape[1].size;
  const ValueId dx = builder.made(name, {builder.value(dy).shape[0], cols}, builder.dtype());
  builder.add(OperationKind::kInputGradient, {dy, weight, factor}, {dx}, ProductAttributes{scale});
  return dx;
}

void weight_gradient(ProgramBuilder& builder, ValueId dy, ValueId x, ValueId weight, double scale,
                     ValueId factor) {
  builder.add(OperationKind::kWeightGradient, {dy, x, factor}, {}, ProductAttributes{scale},
              {builder.gradient_of(weight)});
}

ValueId add_bias(ProgramBuilder& builder, ValueId y, ValueId bias) {
  if (bias == kNoValue) return y;
  const ValueId sum = builder.over(builder.value(y).name, y);
  builder.add(OperationKind::kAddBias, {y, bias}, {sum});
  return sum;
}

void bias_gradient(ProgramBuilder& builder, ValueId dy, ValueId bias) {
  if (bias == kNoValue) return;
  builder.add(OperationKind::kBiasGradient, {dy}, {}, {}, {builder.gradient_of(bias)});
}

ValueId add_branch(ProgramBuilder& builder, const std::string& branch_norm, ValueId residual,
                   ValueId y, ValueId bias, const DropoutAttributes& dropout,
                   const std::string& name) {
  if (builder.model().norm_placement == NormPlacement::kBoth) {
    const std::string behind = model::is_hybrid(builder.model()) ? "norm" : branch_norm;
    y = norm(builder, norm_parts(builder, "post_" + behind), add_bias(builder, y, bias),
             "norm behind " + behind)
            .y;
    bias = kNoValue;
  }
  const ValueId branch = drop_in_place(builder, add_bias(builder, y, bias), dropout);
  const ValueId sum = builder.over(name, branch);
  builder.add(OperationKind::kAdd, {residual, branch}, {sum});
  return sum;
}

ValueId to_context_ranks(ProgramBuilder& builder, ValueId x) {
  if (builder.call().context.degree() == 1) return x;
  const ValueId y = builder.made_like(builder.value(x).name + " exchanged", x);
  builder.add(OperationKind::kAllToAll, {x}, {y}, MessageAttributes{kContextForward});
  return y;
}

ValueId add_to(ProgramBuilder& builder, ValueId sum, ValueId x) {
  if (sum == kNoValue) return x;
  const ValueId result = builder.over(builder.value(sum).name, sum);
  builder.add(OperationKind::kAdd, {x, sum}, {result});
  return result;
}

}  // namespace smp::program
