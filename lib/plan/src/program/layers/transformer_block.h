#pragma once

#include <vector>

#include "program/layers/branches.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::program {

inline Shape hidden_shape(const ProgramBuilder& builder) {
  const model::LayerCall& call = builder.call();
  return {{call.own_tokens(), "tokens", call.sequence_parallel ? call.tensor_degree : 1},
          {builder.model().hidden_size, "hidden"}};
}

inline Shape table_shape(const ProgramBuilder& builder) {
  const int64_t parts = builder.call().attention_degree();
  return {{model::kRelativeBuckets, "buckets"},
          {builder.model().num_heads / parts, "heads", parts}};
}

// A transformer block:
//   x1 = x + attention(x)
//   y = x1 + mlp(x1)
// or, with a parallel residual, where both read x, and may share its norm:
//   y = x + attention(x) + mlp(x)
// An encoder's block also takes a table of relative positions, and passes on the decoder's inputs;
// the last one does not pass on its table.
//
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
    const ValueId dx = backward(dy, gradients);
    std::vector<ValueId> inputs{dx};
    if (has_table_) inputs.push_back(gradients.table);
    inputs.insert(inputs.end(), passed.begin(), passed.end());
    return inputs;
  }

  // The gradient of x, in a decoder.
  ValueId backward(ValueId dy) {
    AttentionSides gradients;
    return backward(dy, gradients);
  }

 private:
  ValueId backward(ValueId dy, AttentionSides& gradients) {
    ValueId dx1 = mlp_.backward(dy);
    if (!shares_norm_) {
      dx1 = norm_backward(builder_, mlp_.norm_parts(), dx1, read_, mlp_.stats(), dy,
                          mlp_.region().splits_tokens(), is_parallel_ ? "x + y" : "x + attention");
    }
    ValueId dx = attention_.backward(is_parallel_ ? dy : dx1, x_, sides_, gradients);
    // Both branches' gradients of the shared norm's result.
    if (shares_norm_) dx = add_to(builder_, dx, dx1);
    return norm_backward(builder_, attention_.norm_parts(), dx, x_, attention_.stats(),
                         shares_norm_ ? dy : dx1, attention_.region().splits_tokens(), "x");
  }

  ProgramBuilder& builder_;
  const bool is_parallel_, shares_norm_, has_table_, keeps_table_;
  Attention attention_;
  FeedForward mlp_;
  ValueId x_ = kNoValue, x1_ = kNoValue, read_ = kNoValue;
  AttentionSides sides_;
  std::vector<ValueId> passed_;
};

// Calls `body` with the block that the model's attributes and the layer make. Experts:
// ExpertsBranch, or where other frameworks are priced ExpertsOverRanks.
template <typename Experts, typename Body>
void with_block(ProgramBuilder& builder, const Body& body) {
  const auto with = [&]<typename Attention>(Attention*) {
    if (model::has_experts(builder.model(), builder.layer())) {
      Block<Attention, Experts> block(builder);
      body(block);
    } else {
      Block<Attention, MlpBranch> block(builder);
      body(block);
    }
  };
  if (builder.model().kv_lora_rank > 0) {
    with(static_cast<LatentAttentionBranch*>(nullptr));
  } else {
    with(static_cast<AttentionBranch*>(nullptr));
  }
}

}  // namespace smp::program
