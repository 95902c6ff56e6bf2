#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "layers/parameter_views.h"

// What a block adds to its residual stream: output(attention(norm(x))) and
// down(activation(up(norm(x)))). The norms' results and the activation's are computed again in
// backward: they cost little and would be half of what is kept. What a put-off weight's gradient
// holds is its two factors alone: the inputs and the statistics go with the backward.
namespace smp::layers {

// Labels of what the tensor ranks exchange.
inline constexpr std::string_view kForward = "tensor.forward", kBackward = "tensor.backward";

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
                  bool causal, bool reads_memory, const kernels::TensorRegion& region);

  struct Kept {
    at::Tensor stats;   // of the norm
    at::Tensor packed;  // [n, (q + k + v)/t], or the queries alone
    at::Tensor kv;      // of the memory, [b * keys, (k + v)/t]
    at::Tensor attended, log_sums;
  };

  // x, of this rank's tokens of [batch * s, h], plus the branch; fills `kept`.
  at::Tensor forward(const at::Tensor& x, int64_t batch, const AttentionSide& side, Kept& kept,
                     const kernels::CallContext& call) const;
  // dy is the gradient of the branch's result. Gives the gradient of its norm's result, summed by
  // the region, and adds to `gradients`, which are of all tokens and this rank's part of a sum over
  // the group, or of this rank's tokens and summed; lets go of all that was kept but the
  // statistics.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, int64_t batch,
                      const AttentionSide& side, Kept& kept, AttentionSide& gradients,
                      const kernels::CallContext& call, WeightWork* later) const;

  const kernels::Norm& norm() const { return norm_; }
  const kernels::TensorRegion& region() const { return region_; }

 private:
  void backward_heads(at::Tensor attended_gradient, const kernels::AttentionShape& shape,
                      const AttentionSide& side, Kept& kept, AttentionSide& gradients) const;
  void backward_memory(const at::Tensor& memory, at::Tensor kv, AttentionSide& gradients) const;
  void add_head_norms(at::Tensor& gradients) const;
  kernels::AttentionShape shape_of(const at::Tensor& x, int64_t batch, const AttentionSide& side,
                                   const kernels::CallContext& call) const;
  kernels::AttentionInputs inputs_of(const AttentionSide& side, const Kept& kept) const;
  // Of what the branch adds to the residual.
  kernels::Dropout hidden_dropout(const kernels::AttentionShape& shape,
                                  const kernels::CallContext& call) const;

  int64_t layer_;
  double hidden_dropout_, attention_dropout_;
  bool reads_memory_;
  kernels::Norm norm_, q_norm_, k_norm_;
  kernels::Parameter bias_;     // of queries, keys and values
  kernels::Linear projection_;  // to all of these, or to queries alone
  kernels::Linear kv_;          // of the memory
  kernels::Linear output_;
  kernels::AttentionShape attention_;  // without batch, sequence, keys and dropout
  kernels::TensorRegion region_;
};

class MlpBranch {
 public:
  MlpBranch(const ModelSpec& model, const ParameterViews& parameters,
            const kernels::TensorRegion& region);

  // residual + the branch of x, as attention's, which may be the residual. The statistics of x are
  // filled in, or, where the norm is shared with attention, those of attention. Fills `u`, which is
  // kept.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, int64_t batch,
                     const at::Tensor& stats, at::Tensor& u,
                     const kernels::CallContext& call) const;
  // `u` again, of an x whose statistics are known.
  at::Tensor up(const at::Tensor& x, const at::Tensor& stats) const {
    return up_.forward(region_.gathered(norm_.recompute(x, stats), kForward));
  }
  // As that of attention; `u` is let go of.
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x, int64_t batch,
                      const at::Tensor& stats, at::Tensor& u, const kernels::CallContext& call,
                      WeightWork* later) const;

  const kernels::Norm& norm() const { return norm_; }
  const kernels::TensorRegion& region() const { return region_; }

 private:
  kernels::ActivationShape shape_of(int64_t tokens) const;
  // Of what the branch adds to the residual.
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

// Runs a product of a weight's gradient, one of whose factors is of all tokens outside the region,
// at once or put off: then it holds this rank's part alone, and gathers the others' again. `all`,
// where it is at hand, is the same of all tokens.
template <typename Piece>
void now_or_later(WeightWork* later, const kernels::TensorRegion& region, at::Tensor part,
                  at::Tensor all, Piece piece) {
  if (later == nullptr) {
    piece(all.defined() ? all : region.gathered(std::move(part), kBackward));
  } else {
    later->put_off([&region, part = std::move(part), piece = std::move(piece)] {
      piece(region.gathered(part, kBackward));
    });
  }
}

}  // namespace smp::layers
