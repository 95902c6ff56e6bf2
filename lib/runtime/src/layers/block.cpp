#include "layers/branches.h"
#include "smp/plan/base/check.h"

namespace smp::layers {
namespace {

// A transformer block:
//   x1 = x + attention(x)
//   y = x1 + mlp(x1)
// or, with a parallel residual, where both read x, and may share its norm:
//   y = x + attention(x) + mlp(x)
// An encoder's block also takes a table of relative positions, and passes on the decoder's inputs;
// the last one does not pass on its table.
class Block final : public Layer {
 public:
  Block(const ModelSpec& model, const model::LayerSpec& layer, const ParameterViews& parameters,
        const kernels::TensorParallel& group)
      : is_parallel_(model.parallel_residual),
        shares_norm_(model.shared_norm),
        has_table_(model::is_in_encoder(model, layer)),
        keeps_table_(model::closes_stack(model, layer)),
        attention_(model, parameters, "attention", !model::is_in_encoder(model, layer), false,
                   kernels::TensorRegion(group, group.kinds.attention)),
        mlp_(model, parameters, kernels::TensorRegion(group, group.kinds.mlp)) {
    SMP_CHECK(is_parallel_ || !shares_norm_);
  }

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const kernels::CallContext& call, Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   const kernels::CallContext& call,
                                   DeferredWeightGradients* deferred) override;
  void drop_recomputable(Saved& saved) const override { saved.at(kU).reset(); }
  void rematerialize(Saved& saved) const override;

 private:
  // Indices in Saved.
  static constexpr size_t kInput = 0, kStats = 1, kX1 = 5, kMlpStats = 6, kU = 7;

  const bool is_parallel_, shares_norm_, has_table_, keeps_table_;
  AttentionBranch attention_;
  MlpBranch mlp_;
};

std::vector<at::Tensor> Block::forward(const std::vector<at::Tensor>& inputs,
                                       const kernels::CallContext& call, Saved* saved) {
  const at::Tensor& input = inputs.at(0);  // [b, s / parts, h]
  const int64_t batch = input.size(0);
  const at::Tensor x = input.view({batch * input.size(1), -1});
  AttentionSideInputs side;
  if (has_table_) side.table = inputs.at(1);
  AttentionBranch::Kept kept;
  at::Tensor x1 = attention_.forward(x, batch, side, kept, call);
  at::Tensor mlp_stats, u;
  if (!shares_norm_) mlp_stats = mlp_.norm().empty_stats(x);
  const at::Tensor y = mlp_.forward(is_parallel_ ? x : x1, x1, batch,
                                    shares_norm_ ? kept.stats : mlp_stats, u, call);
  if (is_parallel_) x1.reset();
  if (saved != nullptr) {
    *saved = {input, kept.stats, kept.packed, kept.attended, kept.log_sums, x1, mlp_stats, u};
    if (has_table_) saved->push_back(side.table);
  }
  std::vector<at::Tensor> outputs{y.view(input.sizes())};
  if (has_table_)
    outputs.insert(outputs.end(), inputs.begin() + (keeps_table_ ? 2 : 1), inputs.end());
  return outputs;
}

// The widest of what is kept, for one product that needs no message; of split sequences, the norm's
// result gathered.
void Block::rematerialize(Saved& saved) const {
  const at::Tensor& read = saved.at(is_parallel_ ? kInput : kX1);
  saved.at(kU) =
      mlp_.up(read.view({-1, read.size(-1)}), saved.at(shares_norm_ ? kStats : kMlpStats));
}

std::vector<at::Tensor> Block::backward(Saved saved, std::vector<at::Tensor> gradients,
                                        const kernels::CallContext& call,
                                        DeferredWeightGradients* deferred) {
  SMP_CHECK_EQ(saved.size(), has_table_ ? 9u : 8u);
  const at::Tensor input = std::move(saved[0]);
  AttentionBranch::Kept kept{.stats = std::move(saved[1]),
                             .packed = std::move(saved[2]),
                             .kv = {},
                             .attended = std::move(saved[3]),
                             .log_sums = std::move(saved[4])};
  at::Tensor x1 = std::move(saved[5]);
  at::Tensor mlp_stats = std::move(saved[6]);
  at::Tensor u = std::move(saved[7]);
  AttentionSideInputs side, side_gradients;
  std::vector<at::Tensor> passed;  // gradients of what flows past
  if (has_table_) {
    side.table = std::move(saved[8]);
    if (!keeps_table_) side_gradients.table = gradients.at(1);
    passed.assign(gradients.begin() + (keeps_table_ ? 1 : 2), gradients.end());
  }
  saved.clear();
  const int64_t batch = input.size(0), tokens = batch * input.size(1);
  const at::Tensor dy = std::move(gradients[0]).contiguous().view({tokens, -1});
  gradients.clear();
  const at::Tensor x = input.view({tokens, -1});

  at::Tensor dx1 = mlp_.backward(dy, is_parallel_ ? x : x1, batch,
                                 shares_norm_ ? kept.stats : mlp_stats, u, call, deferred);
  if (!shares_norm_) {
    mlp_.norm().backward(dx1, is_parallel_ ? x : x1, mlp_stats, dy, mlp_.region());
  }
  x1.reset();
  mlp_stats.reset();

  at::Tensor dx = attention_.backward(is_parallel_ ? dy : dx1, x, batch, side, kept, side_gradients,
                                      call, deferred);
  // Both branches' gradients of the shared norm's result.
  if (shares_norm_) kernels::functions_of(dx).add_residual(dx1, {}, dx, {});
  attention_.norm().backward(dx, x, kept.stats, shares_norm_ ? dy : dx1, attention_.region());
  std::vector<at::Tensor> input_gradients{dx.view(input.sizes())};
  if (has_table_) input_gradients.push_back(std::move(side_gradients.table));
  input_gradients.insert(input_gradients.end(), passed.begin(), passed.end());
  return input_gradients;
}

}  // namespace

std::unique_ptr<Layer> make_block(const ModelSpec& model, const model::LayerSpec& layer,
                                  const ParameterViews& parameters,
                                  const kernels::TensorParallel& group) {
  return std::make_unique<Block>(model, layer, parameters, group);
}

}  // namespace smp::layers
