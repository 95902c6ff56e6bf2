#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "program/layers/experts_over_ranks.h"
#include "program/layers/layers.h"
#include "program/layers/transformer_block.h"

// A layer that predicts a further token (DeepSeek-V3, arXiv:2412.19437, section 2.2):
//   x = [norm(the token's row), norm(n)] projection^T
//   n' = norm(block(x))
// n is what the head projects for the token before: of the first such layer the model's final norm
// of its input, of the others the n' of the layer before. All n go on to the head.
namespace smp::program {
namespace {

template <typename BlockOf>
class FurtherToken {
 public:
  FurtherToken(ProgramBuilder& builder, BlockOf& block)
      : builder_(builder),
        depth_(model::mtp_depth(builder.model(), builder.layer())),
        region_(builder, builder.call().kinds.mlp),
        vocabulary_(builder, builder.call().kinds.embedding),
        model_norm_(norm_parts(builder, "model_norm")),
        token_norm_(norm_parts(builder, "token_norm")),
        hidden_norm_(norm_parts(builder, "hidden_norm")),
        norm_(norm_parts(builder, "norm")),
        projection_(builder.parameter("projection.weight")),
        table_(builder.tied_parameter()),
        block_(block) {}

  void forward() {
    x_ = hidden_input(depth_ == 1 ? "x" : name_of(depth_ - 1));
    for (int64_t before = depth_ - 2; before >= 0; --before) {
      passed_.push_back(hidden_input(name_of(before)));
    }
    ids_ = builder_.batch("further tokens",
                          {{builder_.model().num_mtp_layers * builder_.call().tokens(), "tokens"}},
                          DType::kI64);
    ValueId read = x_;
    if (depth_ == 1) {
      const Normed normed = norm(builder_, model_norm_, x_, name_of(0));
      read = normed.y;
      model_stats_ = normed.stats;
    }
    token_ = {taken_rows(), kNoValue};
    const Normed token = norm(builder_, token_norm_, token_.y, "token norm");
    const Normed hidden = norm(builder_, hidden_norm_, read, "hidden norm");
    token_.stats = token.stats;
    hidden_stats_ = hidden.stats;
    y_ = block_.forward(projected(joined(token.y, hidden.y, kForwardLabel)));
    const Normed normed = norm(builder_, norm_, y_, name_of(depth_));
    stats_ = normed.stats;
    LayerProgram& program = builder_.program();
    program.outputs = {normed.y, read};
    program.outputs.insert(program.outputs.end(), passed_.begin(), passed_.end());
    const std::vector<ValueId> outputs = program.outputs;
    for (const ValueId output : outputs) builder_.output_gradient(output);
  }

  void rematerialize() { block_.rematerialize(); }

  std::vector<ValueId> backward() {
    const std::vector<ValueId> given = builder_.program().output_gradients;
    const bool splits = region_.splits_tokens();
    const ValueId dy = norm_backward(builder_, norm_, given[0], y_, stats_, kNoValue, splits, "y");
    const ValueId d_projected = block_.backward(dy);
    const ValueId part = own_columns(region_.gathered(d_projected, kBackwardLabel));
    const ValueId d_joined = region_.summed(
        input_gradient(builder_, part, projection_, "d both", {0, "hidden"}), kBackwardLabel);
    const ValueId read =
        depth_ == 1 ? norm_again(builder_, model_norm_, x_, model_stats_, name_of(0)) : x_;
    builder_.weights([&] {
      const ValueId both = joined(
          norm_again(builder_, token_norm_, token_.y, token_.stats, "token norm"),
          norm_again(builder_, hidden_norm_, read, hidden_stats_, "hidden norm"), kBackwardLabel);
      weight_gradient(builder_, part, both, projection_);
    });
    const ValueId d_token = builder_.made_like("d token norm", token_.y);
    const ValueId d_hidden = builder_.made_like("d hidden norm", token_.y);
    builder_.add(OperationKind::kSplitColumns, {d_joined}, {d_token, d_hidden});
    add_rows(norm_backward(builder_, token_norm_, d_token, token_.y, token_.stats, kNoValue, splits,
                           "rows"));
    ValueId dx = norm_backward(builder_, hidden_norm_, d_hidden, read, hidden_stats_, given[1],
                               splits, name_of(depth_ - 1));
    if (depth_ == 1) {
      dx = norm_backward(builder_, model_norm_, dx, x_, model_stats_, kNoValue, splits, "x");
    }
    std::vector<ValueId> inputs{dx};
    inputs.insert(inputs.end(), given.begin() + 2, given.end());
    inputs.push_back(kNoValue);  // of the tokens
    return inputs;
  }

 private:
  // What the head projects for the token that is so much further on.
  static std::string name_of(int64_t depth) { return fmt::format("n{}", depth); }
  Dim hidden_columns(int64_t times = 1) const {
    return {times * builder_.model().hidden_size, "hidden"};
  }
  ValueId hidden_input(std::string name) {
    return builder_.input(std::move(name), region_.own_tokens(hidden_columns()), builder_.dtype());
  }

  RowsAttributes rows(int64_t first) const {
    const int64_t begin =
        mesh::part_begin(builder_.model().vocab_size, vocabulary_.degree(), vocabulary_.rank());
    return {begin, (depth_ - 1) * builder_.call().tokens() + first,
            builder_.call().sequence_length};
  }
  // As an embedding's, without positions and dropout. A token that there is not has a row of zeros.
  ValueId taken_rows() {
    const bool is_shared = vocabulary_.is_shared();
    const Dim hidden = hidden_columns();
    const ValueId taken = builder_.made(
        "rows", is_shared ? vocabulary_.all_tokens(hidden) : vocabulary_.own_tokens(hidden),
        builder_.dtype());
    builder_.add(OperationKind::kTakeRows, {ids_, table_}, {taken},
                 rows(is_shared ? 0 : vocabulary_.first_token()));
    return is_shared ? vocabulary_.summed(taken, kForwardLabel) : taken;
  }
  void add_rows(ValueId gradient) {
    builder_.add(OperationKind::kAddRows, {ids_, vocabulary_.gathered(gradient, kBackwardLabel)},
                 {}, rows(0), {builder_.gradient_of(table_)});
  }

  // [token | hidden], of all tokens.
  ValueId joined(ValueId token, ValueId hidden, std::string_view label) {
    const ValueId both =
        builder_.made("both", region_.own_tokens(hidden_columns(2)), builder_.dtype());
    builder_.add(OperationKind::kJoinColumns, {token, hidden}, {both});
    return region_.gathered(both, label);
  }
  // Each tensor rank makes columns of its own; the sum puts them together.
  ValueId projected(ValueId both) {
    ValueId y = product(builder_, both, projection_, "projected", {0, "hidden", region_.degree()});
    if (region_.is_shared()) {
      const ValueId whole = builder_.made("own columns projected",
                                          region_.all_tokens(hidden_columns()), builder_.dtype());
      builder_.add(OperationKind::kPlaceColumns, {y}, {whole}, ColumnsAttributes{first_column()});
      y = whole;
    }
    return region_.summed(y, kForwardLabel);
  }
  ValueId own_columns(ValueId gradient) {
    if (!region_.is_shared()) return gradient;
    const ValueId part = builder_.made(
        "d own columns projected",
        region_.all_tokens({builder_.value(projection_).shape[0].size, "hidden", region_.degree()}),
        builder_.dtype());
    builder_.add(OperationKind::kTakeColumns, {gradient}, {part},
                 ColumnsAttributes{first_column()});
    return part;
  }
  int64_t first_column() const {
    return mesh::part_begin(builder_.model().hidden_size, region_.degree(), region_.rank());
  }

  ProgramBuilder& builder_;
  const int64_t depth_;
  const Region region_, vocabulary_;
  const NormParts model_norm_, token_norm_, hidden_norm_, norm_;
  const ValueId projection_, table_;
  BlockOf& block_;
  ValueId x_ = kNoValue, model_stats_ = kNoValue, ids_ = kNoValue;
  std::vector<ValueId> passed_;
  Normed token_;  // rows, and the statistics of their norm
  ValueId hidden_stats_ = kNoValue, y_ = kNoValue, stats_ = kNoValue;
};

}  // namespace

void build_further_token(ProgramBuilder& builder) {
  with_block<ExpertsBranch>(builder, [&](auto& block) {
    FurtherToken layer(builder, block);
    build_sections(builder, layer);
  });
}

void build_further_token_forward(ProgramBuilder& builder) {
  const model::LayerCall& call = builder.call();
  const int64_t h = builder.model().hidden_size;
  const Region region(builder, call.kinds.mlp);
  const ValueId x = builder.input("x", hidden_shape(builder), builder.dtype());
  const ValueId ids = builder.batch("next tokens", {{call.own_tokens(), "tokens"}}, DType::kI64);
  const ValueId rows = builder.made("next tokens' rows", hidden_shape(builder), builder.dtype());
  builder.add(OperationKind::kTakeRows, {ids, builder.tied_parameter()}, {rows}, RowsAttributes{});
  ValueId read = x;
  if (model::mtp_depth(builder.model(), builder.layer()) == 1) {
    read = norm(builder, norm_parts(builder, "model_norm"), x, "model norm").y;
  }
  const ValueId hidden = norm(builder, norm_parts(builder, "hidden_norm"), read, "hidden norm").y;
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
  with_block<ExpertsOverRanks>(builder, [&](auto& block) { y = block.forward(projected); });
  builder.program().outputs = {norm(builder, norm_parts(builder, "norm"), y, "norm").y};
  builder.output_gradient(builder.program().outputs.front());
}

}  // namespace smp::program
