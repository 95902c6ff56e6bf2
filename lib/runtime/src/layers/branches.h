#pragma once

#include <string>
#include <utility>

#include "layers/now_or_later.h"
#include "layers/parameter_views.h"

// What a block adds to its residual stream: output(attention(norm(x))) and
// down(activation(up(norm(x)))). The norms' results and the activation's are computed again in
// backward: they cost little and would be half of what is kept. What a put-off weight's gradient
// holds is its two factors alone: the inputs and the statistics go with the backward.
namespace smp {

// What attention reads beside its block's input, and the gradients of that.
struct AttentionSide {
  at::Tensor table;   // of relative positions, [buckets, heads/t]; undefined without them
  at::Tensor memory;  // what keys and values are made of, [b * keys, h]; undefined: of the input
};

class AttentionBranch {
 public:
  // Its parameters are `name`.*, its norm is `name`_norm. Without a memory keys and values are made
  // of the input.
  AttentionBranch(const ModelSpec& model, const ParameterViews& parameters, const std::string& name,
                  bool causal, bool reads_memory, const TensorParallel& group);

  struct Kept {
    at::Tensor stats;   // of the norm
    at::Tensor packed;  // [n, (q + k + v)/t], or the queries alone
    at::Tensor kv;      // of the memory, [b * keys, (k + v)/t]
    at::Tensor attended, log_sums;
  };

  // x [batch * s, h] plus the branch; fills `kept`.
  at::Tensor forward(const at::Tensor& x, int64_t batch, const AttentionSide& side, Kept& kept,
                     const CallContext& call) const;
  // dy is the gradient of the branch's result. Gives the gradient of its norm's result, summed over
  // the group, and adds to `gradients`, which are this rank's part of a sum over the group; lets go
  // of all that was kept but the statistics.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, int64_t batch,
                      const AttentionSide& side, Kept& kept, AttentionSide& gradients,
                      const CallContext& call, WeightWork* later) const;

  const Norm& norm() const { return norm_; }

 private:
  void backward_heads(at::Tensor attended_gradient, const AttentionShape& shape,
                      const AttentionSide& side, Kept& kept, AttentionSide& gradients) const;
  void backward_memory(const at::Tensor& memory, at::Tensor kv, AttentionSide& gradients) const;
  void add_head_norms(at::Tensor& gradients) const;
  AttentionShape shape_of(const at::Tensor& x, int64_t batch, const AttentionSide& side,
                          const CallContext& call) const;
  // Of what the branch adds to the residual.
  Dropout hidden_dropout(const AttentionShape& shape, const CallContext& call) const;

  int64_t layer_;
  double hidden_dropout_, attention_dropout_;
  bool reads_memory_;
  Norm norm_, q_norm_, k_norm_;
  Parameter bias_;     // of queries, keys and values
  Linear projection_;  // to all of these, or to queries alone
  Linear kv_;          // of the memory
  Linear output_;
  AttentionShape attention_;  // without batch, sequence, keys and dropout
  TensorParallel group_;
};

class MlpBranch {
 public:
  MlpBranch(const ModelSpec& model, const ParameterViews& parameters, const TensorParallel& group);

  // residual + the branch of x [batch * s, h], which may be the residual. The statistics of x are
  // filled in, or, where the norm is shared with attention, those of attention. Fills `u`, which is
  // kept.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, int64_t batch,
                     const at::Tensor& stats, at::Tensor& u, const CallContext& call) const;
  // `u` again, of an x whose statistics are known.
  at::Tensor up(const at::Tensor& x, const at::Tensor& stats) const {
    return up_.forward(norm_.recompute(x, stats));
  }
  // As that of attention; `u` is let go of.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, int64_t batch,
                      const at::Tensor& stats, at::Tensor& u, const CallContext& call,
                      WeightWork* later) const;

  const Norm& norm() const { return norm_; }

 private:
  ActivationShape shape_of(const at::Tensor& x) const;
  // Of what the branch adds to the residual.
  Dropout hidden_dropout(const at::Tensor& x, int64_t batch, const CallContext& call) const;

  int64_t layer_;
  double hidden_dropout_;
  const bool shares_norm_;
  Norm norm_;
  Linear up_, down_;
  ActivationShape activation_;  // without rows
  TensorParallel group_;
};

}  // namespace smp
