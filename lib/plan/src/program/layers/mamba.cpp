#include "program/layers/mamba.h"

#include "program/layers/parts.h"
#include "smp/plan/model/hybrid.h"

namespace smp::program {

ValueId mamba_forward(ProgramBuilder& builder, ValueId x) {
  const ModelSpec& model = builder.model();
  const Region region(builder, builder.call().kinds.attention);
  const int64_t ranks = region.degree(), inner = model::mamba_inner(model) / ranks;
  const Dim stream{inner, "inner", ranks};
  const auto made = [&](const std::string& name) {
    return builder.made(name, region.all_tokens(stream), builder.dtype());
  };
  const Normed normed = norm(builder, branch_norm_parts(builder, "norm"), x, "mamba norm");
  const ValueId projected =
      product(builder, region.gathered(normed.y, kForwardLabel),
              builder.parameter("mamba.input.weight"), "mamba input", {0, "inner", ranks});
  const ValueId exchanged = to_context_ranks(builder, projected);
  const ValueId scanned = made("scanned"), gated = made("gated");
  builder.add(OperationKind::kScan, {exchanged}, {scanned},
              ScanAttributes{.flops = static_cast<double>(builder.call().tokens()) *
                                      model::mamba_scan_flops(model) / static_cast<double>(ranks),
                             .convolved = model::mamba_convolved(model) / ranks,
                             .inner = inner,
                             .states = static_cast<double>(inner * model.mamba_state_dim) /
                                       static_cast<double>(model.mamba_chunk_size)});
  builder.add(OperationKind::kMultiply, {scanned, exchanged}, {gated});
  NormParts parts{
      builder.parameter("mamba.gated_norm.weight"), kNoValue, {false, model.norm_epsilon}};
  const ValueId y = norm(builder, parts, to_context_ranks(builder, gated), "gated norm").y;
  const ValueId out = region.summed(
      product(builder, y, builder.parameter("mamba.output.weight"), "mamba output", {0, "hidden"}),
      kForwardLabel);
  return add_branch(builder, "norm", x, out, kNoValue,
                    hidden_dropout(builder, region, DropoutSite::kMlpOutput), "x + mamba");
}

}  // namespace smp::program
