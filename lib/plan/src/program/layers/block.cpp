#include "program/layers/experts_over_ranks.h"
#include "program/layers/layers.h"
#include "program/layers/mamba.h"
#include "program/layers/transformer_block.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::program {
namespace {

// A block of a decoder that attends to the encoder output:
//   x1 = x + attention(x)
//   x2 = x1 + cross_attention(x1, encoder_output)
//   y = x2 + mlp(x2)
// The first decoder block computes the encoder output: the encoder's final norm, with dropout, of
// its last block's result. The other blocks pass it on, and each adds to its gradient. Each tensor
// rank adds the part of its own heads, and the first decoder block sums over the ranks once. With
// sequence parallelism each block sums its own part.
class CrossBlock {
 public:
  explicit CrossBlock(ProgramBuilder& builder)
      : builder_(builder),
        opens_(model::opens_decoder(builder.model(), builder.layer())),
        closes_(model::closes_stack(builder.model(), builder.layer())),
        encoder_norm_(norm_parts(builder, "encoder_norm")),
        self_(builder, "attention", true, false),
        cross_(builder, "cross_attention", false, true),
        mlp_(builder) {
    SMP_CHECK(!builder.model().parallel_residual);
  }

  void forward() {
    const Shape hidden = hidden_shape(builder_);
    if (opens_) encoder_ = builder_.input("encoder's x", hidden, builder_.dtype());
    x_ = builder_.input("x", hidden, builder_.dtype());
    if (!opens_) encoder_output_ = builder_.input("encoder output", hidden, builder_.dtype());
    table_ = builder_.input("table", table_shape(builder_), builder_.dtype());
    if (opens_) {
      encoder_normed_ = norm(builder_, encoder_norm_, encoder_, "encoder output");
      encoder_output_ = drop_in_place(builder_, encoder_normed_.y, encoder_dropout());
    }
    x1_ = self_.forward(x_, {.table = table_});
    x2_ = cross_.forward(x1_, {.encoder_output = encoder_output_});
    LayerProgram& program = builder_.program();
    program.outputs = {mlp_.forward(x2_, x2_, kNoValue)};
    if (!closes_) program.outputs.insert(program.outputs.end(), {encoder_output_, table_});
    const std::vector<ValueId> outputs = program.outputs;
    for (const ValueId output : outputs) builder_.output_gradient(output);
  }

  void rematerialize() { mlp_.rematerialize(); }

  std::vector<ValueId> backward() {
    const std::vector<ValueId>& given = builder_.program().output_gradients;
    const ValueId dy = given[0];
    AttentionSides gradients;
    if (!closes_) gradients = {.table = given[2], .encoder_output = given[1]};
    ValueId dx2 = mlp_.backward(dy);
    dx2 = norm_backward(builder_, mlp_.norm_parts(), dx2, x2_, mlp_.stats(), dy,
                        mlp_.region().splits_tokens(), "x + cross_attention");
    const AttentionSides sides{.encoder_output = encoder_output_again()};
    ValueId dx1 = cross_.backward(dx2, x1_, sides, gradients);
    dx1 = norm_backward(builder_, cross_.norm_parts(), dx1, x1_, cross_.stats(), dx2,
                        cross_.region().splits_tokens(), "x + attention");
    ValueId dx = self_.backward(dx1, x_, {.table = table_}, gradients);
    dx = norm_backward(builder_, self_.norm_parts(), dx, x_, self_.stats(), dx1,
                       self_.region().splits_tokens(), "x");
    if (!opens_) return {dx, gradients.encoder_output, gradients.table};
    return {encoder_gradient(gradients.encoder_output), dx, gradients.table};
  }

 private:
  // Of the encoder output, in the first block.
  DropoutAttributes encoder_dropout() const {
    return hidden_dropout(builder_, cross_.region(), DropoutSite::kOutput);
  }

  ValueId encoder_output_again() {
    if (!opens_) return encoder_output_;
    return drop_in_place(
        builder_,
        norm_again(builder_, encoder_norm_, encoder_, encoder_normed_.stats, "encoder output"),
        encoder_dropout());
  }

  ValueId encoder_gradient(ValueId gradient) {
    const Region& region = cross_.region();
    if (!region.splits_tokens()) gradient = region.summed(gradient, kBackwardLabel);
    gradient = drop_in_place(builder_, gradient, encoder_dropout());
    return norm_backward(builder_, encoder_norm_, gradient, encoder_, encoder_normed_.stats,
                         kNoValue, region.splits_tokens(), "encoder's x");
  }

  ProgramBuilder& builder_;
  const bool opens_, closes_;
  NormParts encoder_norm_;  // of the first block
  AttentionBranch self_, cross_;
  MlpBranch mlp_;
  ValueId encoder_ = kNoValue;  // the encoder's last block's result
  Normed encoder_normed_;
  ValueId encoder_output_ = kNoValue, x_ = kNoValue, table_ = kNoValue;
  ValueId x1_ = kNoValue, x2_ = kNoValue;
};

}  // namespace

void build_block(ProgramBuilder& builder) {
  with_block<ExpertsBranch>(builder, [&](auto& block) { build_sections(builder, block); });
}

void build_cross_block(ProgramBuilder& builder) {
  CrossBlock block(builder);
  build_sections(builder, block);
}

void build_block_forward(ProgramBuilder& builder) {
  with_block<ExpertsOverRanks>(builder, [](auto& block) { block.forward(); });
}

void build_cross_block_forward(ProgramBuilder& builder) { CrossBlock(builder).forward(); }

// A layer of a hybrid: one mixer with its norm and its residual sum.
void build_mixer_forward(ProgramBuilder& builder) {
  const ValueId x = builder.input("x", hidden_shape(builder), builder.dtype());
  ValueId y = kNoValue;
  switch (model::layer_letter(builder.model(), builder.layer().index - 1)) {
    case model::kMambaLetter: y = mamba_forward(builder, x); break;
    case model::kAttentionLetter:
      y = builder.model().kv_lora_rank > 0
              ? LatentAttentionBranch(builder, "attention", true, false).forward(x, {})
              : AttentionBranch(builder, "attention", true, false).forward(x, {});
      break;
    case model::kExpertsLetter: y = ExpertsOverRanks(builder).forward(x, x, kNoValue); break;
    default: y = MlpBranch(builder).forward(x, x, kNoValue);
  }
  builder.program().outputs = {y};
  builder.output_gradient(y);
}

}  // namespace smp::program
