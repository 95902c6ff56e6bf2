#include <algorithm>
#include <cmath>

#include "smp/plan/base/check.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"

// The parameters of each kind of layer, one by one. parameter_counts.cpp adds up the same.
namespace smp::model {
namespace {

// Collects the parameters of one layer in flat order.
class ParameterList {
 public:
  ParameterList(const ModelSpec& model, const TensorKinds& kinds, std::string prefix)
      : kinds_(kinds), model_(model), prefix_(std::move(prefix)) {}

  const TensorKinds& kinds() const { return kinds_; }
  // Whether the tensor ranks share what comes now.
  void share(bool is_shared) { is_shared_ = is_shared; }

  void matrix(const std::string& name, int64_t rows, int64_t cols, TensorSplit split) {
    add_matrix(name, rows, cols, split, model_.initializer_range);
  }

  // GPT-2 scales the matrices that write to the residual stream by 1/sqrt(number of such writes)
  // (Radford et al. 2019, section 2.3); transformers does the same for GPT-2. We do so for all.
  void residual_matrix(const std::string& name, int64_t rows, int64_t cols, TensorSplit split) {
    const auto blocks = static_cast<double>(block_count(model_));
    add_matrix(name, rows, cols, split, model_.initializer_range / std::sqrt(2.0 * blocks));
  }

  void table(const std::string& name, int64_t rows, int64_t cols, TensorSplit split) {
    matrix(name, rows, cols, split);
    parameters_.back().weight_decay = false;
  }

  void bias(const std::string& name, int64_t size, TensorSplit split) {
    vector(name, size, split, Init::kZeros);
  }

  void norm_weight(const std::string& name, int64_t size,
                   TensorSplit split = TensorSplit::kReplicated) {
    vector(name + ".weight", size, split, Init::kOnes);
  }

  void norm(const std::string& name, int64_t size, TensorSplit split = TensorSplit::kReplicated) {
    norm_weight(name, size, split);
    if (model_.norm == NormKind::kLayerNorm) bias(name + ".bias", size, split);
  }

  void correction_bias(const std::string& name, int64_t size) {
    bias(name, size, TensorSplit::kReplicated);
    parameters_.back().follows_load = true;
  }

  // Of those behind `from` each has the rows of `experts` experts, which stay together.
  void mark_experts(size_t from, int64_t experts) {
    for (size_t i = from; i < parameters_.size(); ++i) {
      parameters_[i].is_expert = true;
      parameters_[i].row_unit = std::max<int64_t>(1, parameters_[i].rows / experts);
    }
  }
  size_t size() const { return parameters_.size(); }
  std::vector<ParameterSpec> take() { return std::move(parameters_); }

 private:
  void add_matrix(const std::string& name, int64_t rows, int64_t cols, TensorSplit split,
                  double std) {
    parameters_.push_back({.name = prefix_ + name,
                           .rows = rows,
                           .cols = cols,
                           .split = is_shared_ ? split : TensorSplit::kReplicated,
                           .init = Init::kNormal,
                           .init_std = std,
                           .weight_decay = true});
  }
  void vector(const std::string& name, int64_t size, TensorSplit split, Init init) {
    parameters_.push_back({.name = prefix_ + name,
                           .rows = size,
                           .is_vector = true,
                           .split = is_shared_ ? split : TensorSplit::kReplicated,
                           .init = init});
  }

  const TensorKinds kinds_;
  bool is_shared_ = true;
  const ModelSpec& model_;
  std::string prefix_;
  std::vector<ParameterSpec> parameters_;
};

void add_latent_attention(ParameterList& list, const ModelSpec& model) {
  list.share(list.kinds().attention);
  const int64_t h = model.hidden_size;
  const int64_t q_rows = model.num_heads * (model.qk_head_dim + model.qk_rope_head_dim);
  const int64_t kv_rows = model.num_heads * (model.qk_head_dim + model.v_head_dim);
  if (model.q_lora_rank > 0) {
    list.matrix("attention.q_down.weight", model.q_lora_rank, h, TensorSplit::kReplicated);
    list.norm_weight("attention.q_down_norm", model.q_lora_rank);
    list.matrix("attention.q_up.weight", q_rows, model.q_lora_rank, TensorSplit::kRows);
  } else {
    list.matrix("attention.q.weight", q_rows, h, TensorSplit::kRows);
  }
  list.matrix("attention.kv_down.weight", model.kv_lora_rank + model.qk_rope_head_dim, h,
              TensorSplit::kReplicated);
  list.norm_weight("attention.kv_down_norm", model.kv_lora_rank);
  list.matrix("attention.kv_up.weight", kv_rows, model.kv_lora_rank, TensorSplit::kRows);
  list.residual_matrix("attention.output.weight", h, model.num_heads * model.v_head_dim,
                       TensorSplit::kColumns);
  if (model.attention_output_bias) list.bias("attention.output.bias", h, TensorSplit::kReplicated);
}

// Weights first, then their biases, so that each kind is one contiguous matrix or vector. So are
// all vectors that are cut by KV heads.
void add_attention(ParameterList& list, const ModelSpec& model, const std::string& name) {
  list.share(list.kinds().attention);
  const int64_t h = model.hidden_size;
  const int64_t q_rows = model.num_heads * model.head_dim;
  const int64_t kv_rows = model.num_kv_heads * model.head_dim;
  list.matrix(name + ".q.weight", q_rows, h, TensorSplit::kRows);
  list.matrix(name + ".k.weight", kv_rows, h, TensorSplit::kKvHeads);
  list.matrix(name + ".v.weight", kv_rows, h, TensorSplit::kKvHeads);
  if (model.qkv_bias) {
    list.bias(name + ".q.bias", q_rows, TensorSplit::kRows);
    list.bias(name + ".k.bias", kv_rows, TensorSplit::kKvHeads);
    list.bias(name + ".v.bias", kv_rows, TensorSplit::kKvHeads);
  }
  if (model.qk_norm && model.qk_norm_over == QkNormOver::kAllHeads) {
    list.norm(name + ".k_norm", kv_rows, TensorSplit::kKvHeads);
    list.norm(name + ".q_norm", q_rows, TensorSplit::kRows);
  } else if (model.qk_norm) {
    list.norm(name + ".q_norm", model.head_dim);
    list.norm(name + ".k_norm", model.head_dim);
  }
  if (model.attention_sinks) list.bias(name + ".sinks", model.num_heads, TensorSplit::kRows);
  list.residual_matrix(name + ".output.weight", h, q_rows, TensorSplit::kColumns);
  if (model.attention_output_bias) list.bias(name + ".output.bias", h, TensorSplit::kReplicated);
}

void add_mlp(ParameterList& list, const ModelSpec& model, const std::string& name, int64_t width) {
  list.share(list.kinds().mlp);
  const int64_t h = model.hidden_size;
  const bool gated = is_gated(model.mlp);
  if (gated) list.matrix(name + ".gate.weight", width, h, TensorSplit::kRows);
  list.matrix(name + ".up.weight", width, h, TensorSplit::kRows);
  if (model.mlp_bias) {
    if (gated) list.bias(name + ".gate.bias", width, TensorSplit::kRows);
    list.bias(name + ".up.bias", width, TensorSplit::kRows);
  }
  list.residual_matrix(name + ".down.weight", h, width, TensorSplit::kColumns);
  if (model.mlp_bias) list.bias(name + ".down.bias", h, TensorSplit::kReplicated);
}

// The experts' matrices lie in one, rows by expert. Tensor ranks share the experts.
void add_expert_mlps(ParameterList& list, const ModelSpec& model, const std::string& name) {
  list.share(list.kinds().mlp);
  const int64_t h = model.hidden_size, f = model.expert_ffn_hidden_size, all = model.num_experts;
  const size_t first = list.size();
  const bool gated = is_gated(model.mlp);
  if (gated) list.matrix(name + ".gate.weight", all * f, h, TensorSplit::kRows);
  list.matrix(name + ".up.weight", all * f, h, TensorSplit::kRows);
  if (model.mlp_bias) {
    if (gated) list.bias(name + ".gate.bias", all * f, TensorSplit::kRows);
    list.bias(name + ".up.bias", all * f, TensorSplit::kRows);
  }
  list.residual_matrix(name + ".down.weight", all * h, f, TensorSplit::kRows);
  if (model.mlp_bias) list.bias(name + ".down.bias", all * h, TensorSplit::kRows);
  list.mark_experts(first, all);
}

void add_experts(ParameterList& list, const ModelSpec& model) {
  list.matrix("mlp.router.weight", model.num_experts, model.hidden_size, TensorSplit::kReplicated);
  if (model.router_bias) {
    list.bias("mlp.router.bias", model.num_experts, TensorSplit::kReplicated);
  }
  if (model.router_correction_bias) {
    list.correction_bias("mlp.router.correction_bias", model.num_experts);
  }
  if (model.shared_expert_ffn_hidden_size > 0) {
    add_mlp(list, model, "mlp.shared_expert", model.shared_expert_ffn_hidden_size);
    if (model.shared_expert_gate) {
      list.matrix("mlp.shared_expert_gate.weight", 1, model.hidden_size, TensorSplit::kReplicated);
    }
  }
  add_expert_mlps(list, model, "mlp.experts");
}

// Norms of attention or MLP, by placement. Of a block whose norm is shared, `name` is the one.
void add_norms(ParameterList& list, const ModelSpec& model, const std::string& name) {
  list.norm(name, model.hidden_size);
  if (model.norm_placement == NormPlacement::kBoth) {
    list.norm("post_" + name, model.hidden_size);
  }
}

void add_mamba(ParameterList& list, const ModelSpec& model) {
  list.share(list.kinds().attention);
  const int64_t h = model.hidden_size;
  const int64_t inner = mamba_inner(model);
  list.matrix("mamba.input.weight", mamba_projected(model), h, TensorSplit::kRows);
  list.table("mamba.convolution.weight", mamba_convolved(model), model.mamba_conv_kernel,
             TensorSplit::kRows);
  list.bias("mamba.convolution.bias", mamba_convolved(model), TensorSplit::kRows);
  for (const char* name : {"mamba.a", "mamba.d", "mamba.time_step.bias"}) {
    list.bias(name, model.mamba_heads, TensorSplit::kRows);
  }
  list.bias("mamba.gated_norm.weight", inner, TensorSplit::kRows);
  list.residual_matrix("mamba.output.weight", h, inner, TensorSplit::kColumns);
}

// One mixer of a hybrid.
void add_mixer(ParameterList& list, const ModelSpec& model, char letter) {
  add_norms(list, model, "norm");
  switch (letter) {
    case kMambaLetter: return add_mamba(list, model);
    case kAttentionLetter: return add_attention(list, model, "attention");
    case kExpertsLetter: return add_experts(list, model);
    default: return add_mlp(list, model, "mlp", model.ffn_hidden_size);
  }
}

void add_block(ParameterList& list, const ModelSpec& model, bool cross, bool experts) {
  const int64_t h = model.hidden_size;
  add_norms(list, model, "attention_norm");
  if (model.kv_lora_rank > 0) {
    add_latent_attention(list, model);
  } else {
    add_attention(list, model, "attention");
  }
  if (cross) {
    list.norm("cross_attention_norm", h);
    add_attention(list, model, "cross_attention");
  }
  if (!model.shared_norm) add_norms(list, model, "mlp_norm");
  if (experts) {
    add_experts(list, model);
  } else {
    add_mlp(list, model, "mlp", model.ffn_hidden_size);
  }
}

// DeepSeek-V3 (arXiv:2412.19437, section 2.2): norms of the hidden state and of the next token's
// embedding, the projection of both, a block, and a norm before the shared head. The hidden state
// of the first one is what the head projects: it has the model's final norm.
void add_mtp_block(ParameterList& list, const ModelSpec& model, bool is_first) {
  const int64_t h = model.hidden_size;
  if (is_first) list.norm("model_norm", h);
  list.norm("token_norm", h);
  list.norm("hidden_norm", h);
  list.matrix("projection.weight", h, 2 * h, TensorSplit::kRows);
  add_block(list, model, false, has_experts(model, model.num_layers - 1));
  list.norm("norm", h);
}

void add_embedding(ParameterList& list, const ModelSpec& model) {
  list.share(list.kinds().embedding);
  const int64_t h = model.hidden_size;
  list.matrix("tokens.weight", padded_vocab_rows(model), h, TensorSplit::kRows);
  if (model.position_embedding == PositionKind::kLearned) {
    list.table("positions.weight", model.max_positions, h, TensorSplit::kReplicated);
  }
  if (model.position_embedding == PositionKind::kRelative) {
    list.share(list.kinds().attention);  // by heads
    list.table("relative.weight", kRelativeBuckets, model.num_heads, TensorSplit::kColumns);
    if (model.stack == Stack::kEncoderDecoder) {
      list.table("decoder_relative.weight", kRelativeBuckets, model.num_heads,
                 TensorSplit::kColumns);
    }
  }
  if (model.stack == Stack::kEncoder) {
    list.table("token_types.weight", kTokenTypes, h, TensorSplit::kReplicated);
  }
  if (model.vision_parameters > 0) {
    list.table("vision_tower", model.vision_parameters, 1, TensorSplit::kReplicated);
  }
}

void add_head(ParameterList& list, const ModelSpec& model) {
  list.share(list.kinds().embedding);
  const int64_t h = model.hidden_size;
  if (model.num_mtp_layers == 0) list.norm("norm", h);
  if (model.stack == Stack::kEncoder) {
    list.matrix("transform.weight", h, h, TensorSplit::kReplicated);
    list.bias("transform.bias", h, TensorSplit::kReplicated);
    list.norm("transform_norm", h);
  }
  const int64_t rows = padded_vocab_rows(model);
  if (!model.tied_embeddings) list.matrix("weight", rows, h, TensorSplit::kRows);
  if (model.head_bias) list.bias("bias", rows, TensorSplit::kRows);
  if (model.stack == Stack::kEncoder) {
    list.matrix("pooler.weight", h, h, TensorSplit::kReplicated);
    list.bias("pooler.bias", h, TensorSplit::kReplicated);
    list.matrix("next_sentence.weight", 2, h, TensorSplit::kReplicated);
    list.bias("next_sentence.bias", 2, TensorSplit::kReplicated);
  }
}

}  // namespace

std::vector<ParameterSpec> parameters_of(const ModelSpec& model, const LayerSpec& layer,
                                         const TensorKinds& kinds) {
  ParameterList list(model, kinds, layer.name + ".");
  if (is_hybrid(model) && is_transformer_block(layer.kind)) {
    add_mixer(list, model, layer_letter(model, layer.index - 1));
    return list.take();
  }
  switch (layer.kind) {
    case LayerKind::kEmbedding: add_embedding(list, model); break;
    case LayerKind::kBlock: add_block(list, model, false, false); break;
    case LayerKind::kMoeBlock: add_block(list, model, false, true); break;
    case LayerKind::kCrossBlock:
      if (opens_decoder(model, layer)) list.norm("encoder_norm", model.hidden_size);
      add_block(list, model, true, false);
      break;
    case LayerKind::kMtpBlock: add_mtp_block(list, model, mtp_depth(model, layer) == 1); break;
    case LayerKind::kHead: add_head(list, model); break;
    case LayerKind::kOperators:
    case LayerKind::kLastOperators: return operator_parameters(model, layer);
  }
  return list.take();
}

bool have_equal_parameters(const ModelSpec& model, const LayerSpec& a, const LayerSpec& b) {
  if (a.index == b.index) return true;
  if (a.kind != b.kind || is_list(model)) return false;
  if (is_hybrid(model) && is_transformer_block(a.kind)) {
    return layer_letter(model, a.index - 1) == layer_letter(model, b.index - 1);
  }
  if (a.kind == LayerKind::kMtpBlock) {
    return (mtp_depth(model, a) == 1) == (mtp_depth(model, b) == 1);
  }
  return opens_decoder(model, a) == opens_decoder(model, b);
}

int64_t parameter_count(const ModelSpec& model) {
  const double count = parameter_counts(model).total();
  SMP_CHECK(count < 0x1p53);
  return std::llround(count);  // a mean of layers is no whole number
}

}  // namespace smp::model
