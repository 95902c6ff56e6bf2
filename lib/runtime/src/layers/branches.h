#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "layers/parameter_views.h"
#include "layers/run_or_defer.h"

// The branches that a block adds to its residual stream: output(attention(norm(x))) and
// down(activation(up(norm(x)))). The backward recomputes the outputs of norms and activation: they
// are cheap and would be half of the saved bytes. A deferred weight gradient holds its two factors
// only; the backward frees the inputs and the statistics.
namespace smp::layers {

// Labels of the tensor ranks' messages.
inline constexpr std::string_view kForward = "tensor.forward", kBackward = "tensor.backward";

// The inputs of attention beside its block's input, or their gradients.
struct AttentionSideInputs {
  at::Tensor table;  // of relative positions, [buckets, heads/t]; undefined without them
  // The source of keys and values, [b * keys, h]; undefined: the block's input.
  at::Tensor encoder_output;
};

class AttentionBranch {
 public:
  // Its parameters are `name`.*, its norm is `name`_norm. Unless it reads the encoder output, keys
  // and values are projections of the block's input.
  AttentionBranch(const ModelSpec& model, const ParameterViews& parameters, const std::string& name,
                  bool causal, bool reads_encoder_output, const kernels::TensorRegion& region);

  struct Kept {
    at::Tensor stats;   // of the norm
    at::Tensor packed;  // [n, (q + k + v)/t], or the queries only
    at::Tensor kv;      // of the encoder output, [b * keys, (k + v)/t]
    at::Tensor attended, log_sums;
  };

  // Returns x plus the branch; x has this rank's tokens of [batch * s, h]. Fills `kept`.
  at::Tensor forward(const at::Tensor& x, int64_t batch, const AttentionSideInputs& side,
                     Kept& kept, const kernels::CallContext& call) const;
  // dy is the gradient of the branch's result. Returns the gradient of its norm's result, summed by
  // the region, and adds to `gradients`. Those are of all tokens and this rank's addend of a sum
  // over the group; with sequence parallelism they are of this rank's tokens and summed. Frees
  // everything in `kept` but the statistics.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, int64_t batch,
                      const AttentionSideInputs& side, Kept& kept, AttentionSideInputs& gradients,
                      const kernels::CallContext& call, DeferredWeightGradients* deferred) const;

  const kernels::Norm& norm() const { return norm_; }
  const kernels::TensorRegion& region() const { return region_; }

 private:
  void backward_heads(at::Tensor attended_gradient, const kernels::AttentionShape& shape,
                      const AttentionSideInputs& side, Kept& kept,
                      AttentionSideInputs& gradients) const;
  void backward_encoder_output(const at::Tensor& encoder_output, at::Tensor kv,
                               AttentionSideInputs& gradients) const;
  void add_head_norms(at::Tensor& gradients) const;
  kernels::AttentionShape shape_of(const at::Tensor& x, int64_t batch,
                                   const AttentionSideInputs& side,
                                   const kernels::CallContext& call) const;
  kernels::AttentionInputs inputs_of(const AttentionSideInputs& side, const Kept& kept) const;
  // The dropout of the branch's result.
  kernels::Dropout hidden_dropout(const kernels::AttentionShape& shape,
                                  const kernels::CallContext& call) const;

  int64_t layer_;
  double hidden_dropout_, attention_dropout_;
  bool reads_encoder_output_;
  kernels::Norm norm_, q_norm_, k_norm_;
  kernels::Parameter bias_;     // of queries, keys and values
  kernels::Linear projection_;  // to queries, keys and values, or to queries only
  kernels::Linear kv_;          // of the encoder output
  kernels::Linear output_;
  kernels::AttentionShape attention_;  // without batch, sequence, keys and dropout
  kernels::TensorRegion region_;
};

class MlpBranch {
 public:
  MlpBranch(const ModelSpec& model, const ParameterViews& parameters,
            const kernels::TensorRegion& region);

  // Returns residual + the branch of x; x may be the residual. Computes the statistics of x, or
  // uses those of attention if it shares attention's norm. Fills `u`, which is saved.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, int64_t batch,
                     const at::Tensor& stats, at::Tensor& u,
                     const kernels::CallContext& call) const;
  // Recomputes `u` from x and its statistics.
  at::Tensor up(const at::Tensor& x, const at::Tensor& stats) const {
    return up_.forward(region_.gathered(norm_.recompute(x, stats), kForward));
  }
  // As the attention branch's backward; frees `u`.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, int64_t batch,
                      const at::Tensor& stats, at::Tensor& u, const kernels::CallContext& call,
                      DeferredWeightGradients* deferred) const;

  const kernels::Norm& norm() const { return norm_; }
  const kernels::TensorRegion& region() const { return region_; }

 private:
  kernels::ActivationShape shape_of(int64_t tokens) const;
  // The dropout of the branch's result.
  kernels::Dropout hidden_dropout(const at::Tensor& x, int64_t batch,
                                  const kernels::CallContext& call) const;

  int64_t layer_;
  double hidden_dropout_;
  const bool shares_norm_;
  kernels::Norm norm_;
  kernels::Linear up_, down_;
  kernels::ActivationShape activation_;  // without rows
  kernels::TensorRegion region_;
};

// Computes a product of a weight gradient now, or defers it. One of its factors, of all tokens, is
// gathered from the region's ranks. A deferred product holds this rank's `part` of that factor only
// and gathers it when it runs. `all` is the gathered factor if the caller has it already.
template <typename Piece>
void run_or_defer_gathered(DeferredWeightGradients* deferred, const kernels::TensorRegion& region,
                           at::Tensor part, at::Tensor all, Piece piece) {
  if (deferred != nullptr) {
    all.reset();
  } else if (!all.defined()) {
    all = region.gathered(std::move(part), kBackward);
  }
  run_or_defer(deferred,
               [&region, part = std::move(part), all = std::move(all), piece = std::move(piece)] {
                 piece(all.defined() ? all : region.gathered(part, kBackward));
               });
}

}  // namespace smp::layers
