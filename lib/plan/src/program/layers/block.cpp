#include "program/layers/branches.h"
#include "program/layers/experts_over_ranks.h"
#include "program/layers/layers.h"
#include "program/layers/mamba.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/parameter_counts.h"

// A transformer block:
//   x1 = x + attention(x)
//   y = x1 + mlp(x1)
// or, with a parallel residual, where both read x, and may share its norm:
//   y = x + attention(x) + mlp(x)
// An encoder's block also takes a table of relative positions, and passes on the decoder's inputs;
// the last one does not pass on its table.
namespace smp::program {
namespace {

Shape hidden_shape(const ProgramBuilder& builder) {
  const model::LayerCall& call = builder.call();
  return {{call.own_tokens(), "tokens", call.sequence_parallel ? call.tensor_degree : 1},
          {builder.model().hidden_size, "hidden"}};
}

Shape table_shape(const ProgramBuilder& builder) {
  const int64_t parts = builder.call().attention_degree();
  return {{model::kRelativeBuckets, "buckets"},
          {builder.model().num_heads / parts, "heads", parts}};
}

// The two branches and how they are joined. Attention: AttentionBranch or LatentAttentionBranch;
// FeedForward: MlpBranch or ExpertsBranch.
template <typename Attention, typename FeedForward>
class Block {
 public:
  explicit Block(ProgramBuilder& builder)
      : builder_(builder),
        is_parallel_(builder.model().parallel_residual),
        shares_norm_(builder.model().shared_norm),
        has_table_(model::is_in_encoder(builder.model(), builder.layer())),
        keeps_table_(model::closes_stack(builder.model(), builder.layer())),
        attention_(builder, "attention", builder.model().stack == Stack::kDecoder, false),
        mlp_(builder) {
    SMP_CHECK(is_parallel_ || !shares_norm_);
  }

  void forward() {
    const ValueId x = builder_.input("x", hidden_shape(builder_), builder_.dtype());
    if (has_table_) {
      sides_.table = builder_.input("table", table_shape(builder_), builder_.dtype());
      passed_ = {builder_.input("decoder's x", hidden_shape(builder_), builder_.dtype()),
                 builder_.input("decoder's table", table_shape(builder_), builder_.dtype())};
    }
    const ValueId y = forward(x);
    LayerProgram& program = builder_.program();
    program.outputs = {y};
    if (has_table_ && !keeps_table_) program.outputs.push_back(sides_.table);
    program.outputs.insert(program.outputs.end(), passed_.begin(), passed_.end());
    const std::vector<ValueId> outputs = program.outputs;
    for (const ValueId output : outputs) builder_.output_gradient(output);
  }

  ValueId forward(ValueId x) {
    x_ = x;
    x1_ = attention_.forward(x_, sides_);
    read_ = is_parallel_ ? x_ : x1_;
    return mlp_.forward(read_, x1_, shares_norm_ ? attention_.stats() : kNoValue);
  }

  void rematerialize() { mlp_.rematerialize(); }

  // The gradients of the inputs.
  std::vector<ValueId> backward() {
    std::vector<ValueId> passed = builder_.program().output_gradients;
    const ValueId dy = passed.front();
    passed.erase(passed.begin());
    AttentionSides gradients;
    if (has_table_ && !keeps_table_) {
      gradients.table = passed.front();
      passed.erase(passed.begin());
    }
    ValueId dx1 = mlp_.backward(dy);
    if (!shares_norm_) {
      dx1 = norm_backward(builder_, mlp_.norm_parts(), dx1, read_, mlp_.stats(), dy,
                          mlp_.region().splits_tokens(), is_parallel_ ? "x + y" : "x + attention");
    }
    ValueId dx = attention_.backward(is_parallel_ ? dy : dx1, x_, sides_, gradients);
    // Both branches' gradients of the shared norm's result.
    if (shares_norm_) dx = add_to(builder_, dx, dx1);
    dx = norm_backward(builder_, attention_.norm_parts(), dx, x_, attention_.stats(),
                       shares_norm_ ? dy : dx1, attention_.region().splits_tokens(), "x");
    std::vector<ValueId> inputs{dx};
    if (has_table_) inputs.push_back(gradients.table);
    inputs.insert(inputs.end(), passed.begin(), passed.end());
    return inputs;
  }

 private:
  ProgramBuilder& builder_;
  const bool is_parallel_, shares_norm_, has_table_, keeps_table_;
  Attention attention_;
  FeedForward mlp_;
  ValueId x_ = kNoValue, x1_ = kNoValue, read_ = kNoValue;
  AttentionSides sides_;
  std::vector<ValueId> passed_;
};

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

template <typename Kind>
void build_with(ProgramBuilder& builder) {
  Kind block(builder);
  builder.open(Section::kForward);
  block.forward();
  builder.open(Section::kRematerialize);
  block.rematerialize();
  builder.open(Section::kBackward);
  builder.program().input_gradients = block.backward();
  builder.open(Section::kDeferring);
  builder.program().deferred_input_gradients = block.backward();
}

template <typename FeedForward>
void build_block_with(ProgramBuilder& builder) {
  if (builder.model().kv_lora_rank > 0) {
    build_with<Block<LatentAttentionBranch, FeedForward>>(builder);
  } else {
    build_with<Block<AttentionBranch, FeedForward>>(builder);
  }
}

}  // namespace

void build_block(ProgramBuilder& builder) { build_block_with<MlpBranch>(builder); }

void build_expert_block(ProgramBuilder& builder) { build_block_with<ExpertsBranch>(builder); }

void build_cross_block(ProgramBuilder& builder) { build_with<CrossBlock>(builder); }

namespace {

// Calls `body` with the block that the model's attributes make.
template <typename FeedForward, typename Body>
void with_block_of(ProgramBuilder& builder, const Body& body) {
  if (builder.model().kv_lora_rank > 0) {
    Block<LatentAttentionBranch, FeedForward> block(builder);
    body(block);
  } else {
    Block<AttentionBranch, FeedForward> block(builder);
    body(block);
  }
}
template <typename Body>
void with_block(ProgramBuilder& builder, bool has_experts, const Body& body) {
  if (has_experts) {
    with_block_of<ExpertsOverRanks>(builder, body);
  } else {
    with_block_of<MlpBranch>(builder, body);
  }
}

}  // namespace

void build_block_forward(ProgramBuilder& builder) {
  with_block(builder, builder.layer().kind == model::LayerKind::kMoeBlock,
             [](auto& block) { block.forward(); });
}

void build_cross_block_forward(ProgramBuilder& builder) { CrossBlock(builder).forward(); }

// A layer that predicts a further token (DeepSeek-V3, arXiv:2412.19437, section 2.2): the hidden
// state and the next token's row, both normed, are projected to one, which goes through a block.
void build_mtp_forward(ProgramBuilder& builder) {
  const model::LayerCall& call = builder.call();
  const int64_t h = builder.model().hidden_size;
  const Region region(builder, call.kinds.mlp);
  const ValueId x = builder.input("x", hidden_shape(builder), builder.dtype());
  const ValueId ids = builder.batch("next tokens", {{call.own_tokens(), "tokens"}}, DType::kI64);
  const ValueId rows = builder.made("next tokens' rows", hidden_shape(builder), builder.dtype());
  builder.add(OperationKind::kTakeRows, {ids, builder.tied_parameter()}, {rows}, RowsAttributes{});
  const ValueId hidden = norm(builder, norm_parts(builder, "hidden_norm"), x, "hidden norm").y;
  const ValueId token = norm(builder, norm_parts(builder, "token_norm"), rows, "token norm").y;
  const ValueId joined =
      builder.made("both", region.own_tokens({2 * h, "hidden"}), builder.dtype());
  builder.add(OperationKind::kJoinColumns, {token, hidden}, {joined});
  ValueId projected =
      product(builder, region.gathered(joined, kForwardLabel),
              builder.parameter("projection.weight"), "projected", {0, "hidden", region.degree()});
  if (region.is_shared()) {
    const ValueId whole = builder.made("projected, whole", hidden_shape(builder), builder.dtype());
    builder.add(OperationKind::kAllGather, {projected}, {whole}, MessageAttributes{kForwardLabel});
    projected = whole;
  }
  ValueId y = kNoValue;
  with_block(builder, model::has_experts(builder.model(), builder.model().num_layers - 1),
             [&](auto& block) { y = block.forward(projected); });
  builder.program().outputs = {norm(builder, norm_parts(builder, "norm"), y, "norm").y};
  builder.output_gradient(builder.program().outputs.front());
}

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
