#include <array>

#include "layers/branches.h"
#include "smp/plan/base/check.h"

namespace smp::layers {
namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.view({x.size(0) * x.size(1), -1}); }

// A block of a decoder that attends to the encoder output:
//   x1 = x + attention(x)
//   x2 = x1 + cross_attention(x1, encoder_output)
//   y = x2 + mlp(x2)
// The first decoder block computes the encoder output: the encoder's final norm, with dropout, of
// its last block's result. The other blocks pass it on, and each adds to its gradient. Each tensor
// rank adds the part of its own heads, and the first decoder block sums over the ranks once. With
// sequence parallelism each block sums its own part.
class CrossBlock final : public Layer {
 public:
  CrossBlock(const ModelSpec& model, const model::LayerSpec& layer,
             const ParameterViews& parameters, const kernels::TensorParallel& group)
      : opens_(model::opens_decoder(model, layer)),
        closes_(model::closes_stack(model, layer)),
        layer_(parameters.layer()),
        hidden_dropout_(model.hidden_dropout),
        encoder_norm_(parameters.norm("encoder_norm", model.norm_epsilon)),
        self_(model, parameters, "attention", true, false,
              kernels::TensorRegion(group, group.kinds.attention)),
        cross_(model, parameters, "cross_attention", false, true,
               kernels::TensorRegion(group, group.kinds.attention)),
        mlp_(model, parameters, kernels::TensorRegion(group, group.kinds.mlp)) {
    SMP_CHECK(!model.parallel_residual);
  }

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const kernels::CallContext& call, Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   const kernels::CallContext& call,
                                   DeferredWeightGradients* deferred) override;
  void drop_recomputable(Saved& saved) const override { saved.at(kU).reset(); }
  void rematerialize(Saved& saved) const override {
    saved.at(kU) = mlp_.up(saved.at(kX2), saved.at(kMlpStats));
  }

 private:
  // Indices in Saved.
  static constexpr size_t kX2 = 14, kMlpStats = 15, kU = 16;

  // The tensors that a call keeps, in the order of its Saved.
  struct Kept {
    at::Tensor input;           // [b, s, h]
    at::Tensor encoder_output;  // [b, s, h]; in the first block the encoder's last block's result
    at::Tensor encoder_stats;   // in the first block
    at::Tensor table;
    AttentionBranch::Kept self;  // without kv
    at::Tensor x1;
    AttentionBranch::Kept cross;
    at::Tensor x2, mlp_stats, u;
  };
  static Saved saved_of(const Kept& kept);
  static Kept kept_of(Saved saved);
  at::Tensor encoder_output_of(const Kept& kept, const kernels::CallContext& call) const;  // [n, h]
  at::Tensor encoder_gradient(at::Tensor output_gradient, const Kept& kept,
                              const kernels::CallContext& call) const;
  // The dropout of the encoder output, in the first block.
  kernels::Dropout dropout(const at::Tensor& encoder_output,
                           const kernels::CallContext& call) const {
    const kernels::TensorRegion& region = cross_.region();
    const int64_t sequence = encoder_output.size(1) * region.parts();
    return region.of_own_tokens(
        kernels::dropout_of(hidden_dropout_, call, layer_, kernels::DropoutSite::kOutput, sequence),
        encoder_output.size(0) * sequence);
  }

  const bool opens_, closes_;
  const int64_t layer_;
  const double hidden_dropout_;
  kernels::Norm encoder_norm_;  // of the first block
  AttentionBranch self_, cross_;
  MlpBranch mlp_;
};

Saved CrossBlock::saved_of(const Kept& kept) {
  return {kept.input,
          kept.encoder_output,
          kept.encoder_stats,
          kept.table,
          kept.self.stats,
          kept.self.packed,
          kept.self.attended,
          kept.self.log_sums,
          kept.x1,
          kept.cross.stats,
          kept.cross.packed,
          kept.cross.kv,
          kept.cross.attended,
          kept.cross.log_sums,
          kept.x2,
          kept.mlp_stats,
          kept.u};
}

CrossBlock::Kept CrossBlock::kept_of(Saved saved) {
  SMP_CHECK_EQ(saved.size(), 17u);
  return {
      saved[0],
      saved[1],
      saved[2],
      saved[3],
      {.stats = saved[4], .packed = saved[5], .kv = {}, .attended = saved[6], .log_sums = saved[7]},
      saved[8],
      {saved[9], saved[10], saved[11], saved[12], saved[13]},
      saved[14],
      saved[15],
      saved[16]};
}

at::Tensor CrossBlock::encoder_output_of(const Kept& kept, const kernels::CallContext& call) const {
  const at::Tensor rows = rows_of(kept.encoder_output);
  if (!opens_) return rows;
  at::Tensor encoder_output = encoder_norm_.recompute(rows, kept.encoder_stats);
  kernels::drop_in_place(dropout(kept.encoder_output, call), encoder_output);
  return encoder_output;
}

std::vector<at::Tensor> CrossBlock::forward(const std::vector<at::Tensor>& inputs,
                                            const kernels::CallContext& call, Saved* saved) {
  Kept kept;
  kept.input = inputs.at(opens_ ? 1 : 0);
  kept.encoder_output = inputs.at(opens_ ? 0 : 1);
  kept.table = inputs.at(2);
  const int64_t batch = kept.input.size(0);
  const at::Tensor x = rows_of(kept.input);
  at::Tensor encoder_output = rows_of(kept.encoder_output);
  if (opens_) {
    kept.encoder_stats = encoder_norm_.empty_stats(encoder_output);
    encoder_output = encoder_norm_.forward(encoder_output, kept.encoder_stats);
    kernels::drop_in_place(dropout(kept.encoder_output, call), encoder_output);
  }
  kept.x1 = self_.forward(x, batch, {.table = kept.table, .encoder_output = {}}, kept.self, call);
  kept.x2 = cross_.forward(kept.x1, batch, {.table = {}, .encoder_output = encoder_output},
                           kept.cross, call);
  kept.mlp_stats = mlp_.norm().empty_stats(x);
  const at::Tensor y = mlp_.forward(kept.x2, kept.x2, batch, kept.mlp_stats, kept.u, call);
  if (saved != nullptr) *saved = saved_of(kept);
  std::vector<at::Tensor> outputs{y.view(kept.input.sizes())};
  if (!closes_) {
    outputs.push_back(encoder_output.view(kept.encoder_output.sizes()));
    outputs.push_back(kept.table);
  }
  return outputs;
}

std::vector<at::Tensor> CrossBlock::backward(Saved saved, std::vector<at::Tensor> gradients,
                                             const kernels::CallContext& call,
                                             DeferredWeightGradients* deferred) {
  Kept kept = kept_of(std::move(saved));
  const std::vector<int64_t> sizes = kept.input.sizes().vec();
  const int64_t batch = sizes[0];
  const at::Tensor x = rows_of(kept.input);
  const at::Tensor dy = rows_of(std::move(gradients[0]).contiguous());
  AttentionSideInputs side_gradients;
  if (!closes_) {
    side_gradients.encoder_output = rows_of(gradients.at(1));
    side_gradients.table = gradients.at(2);
  }
  gradients.clear();

  at::Tensor dx2 = mlp_.backward(dy, kept.x2, batch, kept.mlp_stats, kept.u, call, deferred);
  mlp_.norm().backward(dx2, kept.x2, kept.mlp_stats, dy, mlp_.region());
  kept.x2.reset();
  kept.mlp_stats.reset();

  at::Tensor dx1 = cross_.backward(dx2, kept.x1, batch,
                                   {.table = {}, .encoder_output = encoder_output_of(kept, call)},
                                   kept.cross, side_gradients, call, deferred);
  cross_.norm().backward(dx1, kept.x1, kept.cross.stats, dx2, cross_.region());
  dx2.reset();
  kept.x1.reset();
  kept.cross.stats.reset();

  at::Tensor dx = self_.backward(dx1, x, batch, {.table = kept.table, .encoder_output = {}},
                                 kept.self, side_gradients, call, deferred);
  self_.norm().backward(dx, x, kept.self.stats, dx1, self_.region());
  at::Tensor output_gradient = std::move(side_gradients.encoder_output);
  if (opens_) {
    return {encoder_gradient(std::move(output_gradient), kept, call).view(sizes), dx.view(sizes),
            side_gradients.table};
  }
  return {dx.view(sizes), output_gradient.view(sizes), side_gradients.table};
}

at::Tensor CrossBlock::encoder_gradient(at::Tensor output_gradient, const Kept& kept,
                                        const kernels::CallContext& call) const {
  const kernels::TensorRegion& region = cross_.region();
  if (region.parts() == 1) output_gradient = region.summed(std::move(output_gradient), kBackward);
  kernels::drop_in_place(dropout(kept.encoder_output, call), output_gradient);
  encoder_norm_.backward(output_gradient, rows_of(kept.encoder_output), kept.encoder_stats, {},
                         region);
  return output_gradient;
}

}  // namespace

std::unique_ptr<Layer> make_cross_block(const ModelSpec& model, const model::LayerSpec& layer,
                                        const ParameterViews& parameters,
                                        const kernels::TensorParallel& group) {
  return std::make_unique<CrossBlock>(model, layer, parameters, group);
}

}  // namespace smp::layers
