#pragma once

#include <string>
#include <utility>
#include <vector>

#include "program/layers/expert_exchange.h"
#include "program/layers/head_exchange.h"
#include "program/layers/parts.h"
#include "program/layers/qk_norms.h"

// The branches that a block adds to its residual stream: output(attention(norm(x))) and
// down(activation(up(norm(x)))). The backward computes the results of norms and activation again:
// they are cheap and would be half of the saved bytes.
namespace smp::program {

// The inputs of attention beside its block's input, or their gradients.
struct AttentionSides {
  ValueId table = kNoValue;           // of relative positions, [buckets, heads/t]
  ValueId encoder_output = kNoValue;  // the source of keys and values; none: the block's input
};

// What a rank's attention has of the model and the call. Widths and kv_heads are the branch's.
AttentionAttributes attention_of(const ProgramBuilder& builder, const Region& region, bool causal,
                                 int64_t rotary_dim);

// Rows of what it gives. `parts`: of the heads.
Shape result_shape(const AttentionAttributes& attention, int64_t parts);

// The way out of attention.
struct AttentionOutput {
  ValueId attended, weight, bias;
  DropoutAttributes dropout;
};
// The gradient of what the heads gave, of the gradient of the branch. Adds those of the output's
// parameters.
ValueId attended_gradient(ProgramBuilder& builder, const Region& region, ValueId dy,
                          const AttentionOutput& output);

class AttentionBranch {
 public:
  // Its parameters are `name`.*, its norm is `name`_norm. Unless it reads the encoder output, keys
  // and values are projections of the block's input.
  AttentionBranch(ProgramBuilder& builder, std::string name, bool causal,
                  bool reads_encoder_output);

  // x plus the branch; x has this rank's tokens.
  ValueId forward(ValueId x, const AttentionSides& sides);
  // dy is the gradient of the branch's result. Returns the gradient of its norm's result, summed by
  // the region, and adds to `gradients`. Those are of all tokens and this rank's addend of a sum
  // over the group; with sequence parallelism they are of this rank's tokens and summed.
  ValueId backward(ValueId dy, ValueId x, const AttentionSides& sides, AttentionSides& gradients);

  const NormParts& norm_parts() const { return norm_; }
  const Region& region() const { return region_; }
  ValueId stats() const { return normed_.stats; }

 private:
  AttentionAttributes attributes(const AttentionSides& sides) const;
  std::vector<ValueId> inputs(ValueId packed, ValueId kv, const AttentionSides& sides) const;
  // The gradients of packed queries, keys and values, and of the encoder output's keys and values.
  std::pair<ValueId, ValueId> backward_heads(ValueId attended_gradient, const AttentionSides& sides,
                                             AttentionSides& gradients);
  void backward_encoder_output(ValueId encoder_output, ValueId kv, AttentionSides& gradients);
  DropoutAttributes output_dropout() const;

  ProgramBuilder& builder_;
  const std::string name_;
  const bool causal_, reads_encoder_output_;
  const Region region_;
  NormParts norm_;
  QkNorms all_heads_norms_;
  NormParts q_norm_, k_norm_;  // of each head
  ValueId sinks_, bias_, projection_, kv_projection_, kv_bias_, output_, output_bias_;
  // What the forward has made.
  Normed normed_;
  ValueId packed_ = kNoValue, kv_ = kNoValue, attended_ = kNoValue, log_sums_ = kNoValue;
  // Where heads are exchanged: what attention has read and given.
  ValueId exchanged_ = kNoValue, given_ = kNoValue;
};

// Latent attention, in the place of attention: queries, keys and values are made of normed
// projections to a few columns. Tensor ranks share the heads; each makes the whole latents.
class LatentAttentionBranch {
 public:
  LatentAttentionBranch(ProgramBuilder& builder, const std::string& name, bool causal,
                        bool reads_encoder_output);

  // As the attention branch's; it has no sides.
  ValueId forward(ValueId x, const AttentionSides& sides);
  ValueId backward(ValueId dy, ValueId x, const AttentionSides& sides, AttentionSides& gradients);

  const NormParts& norm_parts() const { return norm_; }
  const Region& region() const { return region_; }
  ValueId stats() const { return stats_; }

 private:
  // Of all tokens, with the statistics of its norm.
  struct Latent {
    NormParts norm;
    ValueId rows = kNoValue, stats = kNoValue;
  };
  AttentionAttributes attributes() const;
  std::vector<ValueId> operands() const;
  DropoutAttributes output_dropout() const;
  ValueId up(Latent& latent, ValueId rows, ValueId weight, const std::string& name);
  ValueId up_backward(const Latent& latent, ValueId dy, ValueId weight, const std::string& name);
  Region::Sum down_backward(ValueId d_q, ValueId d_kv_down, ValueId x);

  ProgramBuilder& builder_;
  const Region region_, whole_;  // `whole_`: what each rank computes whole
  const LatentAttributes widths_;
  const bool has_q_latent_;
  NormParts norm_;
  Latent q_latent_, kv_latent_;
  ValueId q_down_, q_up_, kv_down_, kv_up_, output_, output_bias_;  // without q_down, q_up reads x
  // What the forward has made.
  ValueId stats_ = kNoValue, attended_ = kNoValue, log_sums_ = kNoValue;
  ValueId packed_ = kNoValue, given_ = kNoValue;  // what attention has read and given
};

// The activation of the model's MLPs and experts.
ActivationAttributes activation_of(const ModelSpec& model);

class MlpBranch {
 public:
  explicit MlpBranch(ProgramBuilder& builder);

  // residual + the branch of x; x may be the residual. `stats` are those of attention's norm if it
  // is shared, else kNoValue.
  ValueId forward(ValueId x, ValueId residual, ValueId stats);
  // Makes what selective recompute drops again: the product before the activation.
  void rematerialize();
  // As the attention branch's.
  ValueId backward(ValueId dy);

  const NormParts& norm_parts() const { return norm_; }
  const Region& region() const { return region_; }
  ValueId stats() const { return stats_; }

 private:
  ProgramBuilder& builder_;
  const bool shares_norm_;
  const Region region_;
  const ActivationAttributes activation_;
  NormParts norm_;
  ValueId up_, up_bias_, down_, down_bias_;
  // What the forward has made.
  ValueId x_ = kNoValue, stats_ = kNoValue, up_result_ = kNoValue, before_activation_ = kNoValue;
};

// A router, its experts, and an expert for all tokens if there is one, in the place of an MLP.
class ExpertsBranch {
 public:
  explicit ExpertsBranch(ProgramBuilder& builder);

  // residual + the branch of x. It has a norm of its own: `stats` is kNoValue.
  ValueId forward(ValueId x, ValueId residual, ValueId stats);
  void rematerialize();
  ValueId backward(ValueId dy);

  const NormParts& norm_parts() const { return norm_; }
  const Region& region() const { return region_; }
  ValueId stats() const { return stats_; }

 private:
  struct Matrices {
    ValueId gate, up, down;
  };
  // What the activation's backward makes.
  struct Hidden {
    ValueId d_up = kNoValue, d_gate = kNoValue, activated = kNoValue, d_weights = kNoValue;
  };
  Matrices matrices(const std::string& name, const std::string& kind);
  // `weighted`: the rows' weights apply to the bias.
  std::vector<ValueId> product_operands(ValueId x, ValueId weight, ValueId bias,
                                        bool weighted) const;
  ValueId expert_product(const std::vector<ValueId>& operands, const std::string& name, Dim cols);
  ValueId expert_input_gradient(ValueId dy, ValueId weight, const std::string& name, Dim cols);
  void expert_weight_gradient(ValueId dy, ValueId x, ValueId weight);
  void bias_gradients(ValueId d_down, Hidden& routed);
  // Rows for the experts from tokens, and sums for the tokens from rows.
  ValueId dispatched(ValueId x, const std::string& name);
  ValueId combined(ValueId x, const std::string& name);
  void route(ValueId all);
  void routed_products(ValueId x, bool again);
  void shared_products(ValueId all, bool again);
  template <typename Shared>
  ValueId from_experts(ValueId rows, const std::string& name, std::string_view label,
                       const Shared& shared);
  Hidden activation_backward(ValueId up, ValueId gate, ValueId weights, ValueId rows, ValueId ends,
                             ValueId dy, const std::string& name);
  ValueId router_backward(ValueId all, ValueId d_weights, ValueId d_shared_weights);

  ProgramBuilder& builder_;
  const Region region_;
  const RouterAttributes router_;
  ExpertExchange exchange_;  // where ranks share the experts
  const ActivationAttributes activation_;
  const NormParts norm_;
  const ValueId router_weight_, router_bias_, correction_bias_;
  const Matrices routed_, biases_, shared_;
  const ValueId shared_gate_;
  ExpertAttributes experts_;  // of this rank
  int64_t rows_ = 0;          // for them, at most
  // What the forward has made.
  ValueId x_ = kNoValue, stats_ = kNoValue;
  ValueId probabilities_ = kNoValue, chosen_ = kNoValue, weights_ = kNoValue;
  ValueId log_sums_ = kNoValue;
  ValueId rows_by_expert_ = kNoValue, ends_ = kNoValue, places_ = kNoValue;
  ValueId row_weights_ = kNoValue;  // by rows_by_expert_, or by row
  ValueId dispatched_ = kNoValue;   // rows that came from other ranks
  ValueId up_ = kNoValue, gate_ = kNoValue;
  ValueId shared_weights_ = kNoValue, shared_up_ = kNoValue, shared_gate_result_ = kNoValue;
};

}  // namespace smp::program
