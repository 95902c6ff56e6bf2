#include "smp/plan/model/parameter_counts.h"

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"

namespace smp::model {
namespace {

double norm_size(const ModelSpec& model, double width) {
  return width * (model.norm == NormKind::kLayerNorm ? 2 : 1);
}

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): queries and keys go
// through low ranks, whose projections every tensor rank holds.
ParameterSum latent_attention(const ModelSpec& model) {
  const auto h = static_cast<double>(model.hidden_size);
  const auto heads = static_cast<double>(model.num_heads);
  const auto q_rank = static_cast<double>(model.q_lora_rank);
  const auto kv_rank = static_cast<double>(model.kv_lora_rank);
  const auto rope = static_cast<double>(model.qk_rope_head_dim);
  const auto v = static_cast<double>(model.v_head_dim);
  const double q = heads * (static_cast<double>(model.qk_head_dim) + rope);
  const double kv = heads * (static_cast<double>(model.qk_head_dim) + v);
  ParameterSum sum;
  if (model.q_lora_rank > 0) {
    sum.whole += h * q_rank + q_rank;
    sum.cut += q_rank * q;
  } else {
    sum.cut += h * q;
  }
  sum.whole += h * (kv_rank + rope) + kv_rank;
  sum.cut += kv_rank * kv + heads * v * h;
  if (model.attention_output_bias) sum.whole += h;
  return sum;
}

ParameterSum attention(const ModelSpec& model) {
  const auto h = static_cast<double>(model.hidden_size);
  const auto head_dim = static_cast<double>(model.head_dim);
  const double q = static_cast<double>(model.num_heads) * head_dim;
  const double kv = static_cast<double>(model.num_kv_heads) * head_dim;
  ParameterSum sum{.cut = 2 * h * q, .kv = 2 * h * kv};
  if (model.qkv_bias) sum = sum + ParameterSum{.cut = q, .kv = 2 * kv};
  if (model.attention_output_bias) sum.whole += h;
  if (model.attention_sinks) sum.cut += static_cast<double>(model.num_heads);
  if (model.qk_norm && model.qk_norm_over == QkNormOver::kAllHeads) {
    sum = sum + ParameterSum{.cut = norm_size(model, q), .kv = norm_size(model, kv)};
  } else if (model.qk_norm) {
    sum.whole += 2 * norm_size(model, head_dim);
  }
  return sum;
}

ParameterSum mlp(const ModelSpec& model, int64_t ffn_hidden_size) {
  const auto h = static_cast<double>(model.hidden_size);
  const auto f = static_cast<double>(ffn_hidden_size);
  const double inner = is_gated(model.mlp) ? 2 : 1;
  ParameterSum sum{.cut = (inner + 1) * h * f};
  if (model.mlp_bias) sum = sum + ParameterSum{.cut = inner * f, .whole = h};
  return sum;
}

ParameterSum norms(const ModelSpec& model, double count) {
  return {.whole = count * norm_size(model, static_cast<double>(model.hidden_size))};
}

// The sum for a kind of matrix that tensor ranks share, or not.
ParameterSum shared(const ParameterSum& sum, bool is_shared) {
  return is_shared ? sum : ParameterSum{.whole = sum.all()};
}

// Of a Mamba-2 layer: projections, convolution with biases, A, D and the time step's bias of each
// head, the gated norm.
ParameterSum mamba(const ModelSpec& model) {
  const auto h = static_cast<double>(model.hidden_size);
  const auto inner = static_cast<double>(mamba_inner(model));
  const auto convolved = static_cast<double>(mamba_convolved(model));
  const auto projected = static_cast<double>(mamba_projected(model));
  return {.cut = h * projected + h * inner +
                 convolved * static_cast<double>(model.mamba_conv_kernel + 1) +
                 3 * static_cast<double>(model.mamba_heads) + inner};
}

ParameterSum head(const ModelSpec& model) {
  const auto vocabulary_rows = static_cast<double>(padded_vocab_rows(model));
  const auto h = static_cast<double>(model.hidden_size);
  // The first layer that predicts a further token has the final norm.
  const double finals = model.stack == Stack::kEncoderDecoder ? 2
                        : model.num_mtp_layers > 0            ? 0
                                                              : 1;
  ParameterSum sum = norms(model, finals);
  if (!model.tied_embeddings) sum.cut += vocabulary_rows * h;
  if (model.head_bias) sum.cut += vocabulary_rows;
  if (model.stack == Stack::kEncoder) {
    // BERT: transform and its norm, pooler, next-sentence classifier.
    sum.whole += 2 * (h * h + h) + norm_size(model, h) + 2 * h + 2;
  }
  return sum;
}

double norms_of_mixer(const ModelSpec& model) {
  return model.norm_placement == NormPlacement::kBoth ? 2 : 1;
}

// The parts of a model, with the matrices of each kind that tensor ranks share.
struct Parts {
  const ModelSpec& model;
  const TensorKinds& kinds;

  ParameterSum vocabulary() const {
    const auto rows = static_cast<double>(padded_vocab_rows(model));
    return shared({.cut = rows * static_cast<double>(model.hidden_size)}, kinds.embedding);
  }

  ParameterSum embedding() const {
    const auto h = static_cast<double>(model.hidden_size);
    ParameterSum sum = vocabulary();
    if (model.position_embedding == PositionKind::kLearned) {
      sum.whole += static_cast<double>(model.max_positions) * h;
    }
    if (model.stack == Stack::kEncoder) sum.whole += static_cast<double>(kTokenTypes) * h;
    if (model.position_embedding == PositionKind::kRelative) {
      const double tables = model.stack == Stack::kEncoderDecoder ? 2 : 1;
      const auto numbers = static_cast<double>(kRelativeBuckets * model.num_heads);
      sum = sum + shared({.cut = tables * numbers}, kinds.attention);
    }
    sum.whole += static_cast<double>(model.vision_parameters);
    return sum;
  }

  ParameterSum mlp_of(int64_t width) const { return shared(mlp(model, width), kinds.mlp); }
  ParameterSum self_attention() const {
    return shared(model.kv_lora_rank > 0 ? latent_attention(model) : attention(model),
                  kinds.attention);
  }
  ParameterSum norms_of_layer(double branches) const {
    return norms(model, branches * norms_of_mixer(model));
  }
  // A block but for its MLP.
  ParameterSum core() const { return self_attention() + norms_of_layer(model.shared_norm ? 1 : 2); }

  ParameterSum dense_block() const { return core() + mlp_of(model.ffn_hidden_size); }

  ParameterSum cross_block() const {
    return dense_block() + shared(attention(model), kinds.attention) + norms(model, 1);
  }

  // Without its experts. In a hybrid attention is a layer of its own.
  ParameterSum moe_block() const {
    const auto experts = static_cast<double>(model.num_experts);
    const auto h = static_cast<double>(model.hidden_size);
    ParameterSum sum = is_hybrid(model) ? norms_of_layer(1) : core();
    sum.whole += h * experts;
    if (model.router_bias) sum.whole += experts;
    if (model.router_correction_bias) sum.whole += experts;
    if (model.shared_expert_ffn_hidden_size > 0) {
      sum = sum + mlp_of(model.shared_expert_ffn_hidden_size);
      if (model.shared_expert_gate) sum.whole += h;
    }
    return sum;
  }
  ParameterSum expert() const { return mlp_of(model.expert_ffn_hidden_size); }

  bool mtp_has_experts() const { return has_experts(model, model.num_layers - 1); }
  // A block as the last one, and what joins the token that it predicts to it.
  ParameterSum mtp_block(bool is_first) const {
    const auto h = static_cast<double>(model.hidden_size);
    return (mtp_has_experts() ? moe_block() : dense_block()) + norms(model, is_first ? 4 : 3) +
           ParameterSum{.cut = 2 * h * h};
  }

  // A layer of a hybrid.
  ParameterSum mixer(char letter) const {
    if (letter == kExpertsLetter) return moe_block();
    const ParameterSum branch = letter == kMambaLetter ? shared(mamba(model), kinds.attention)
                                : letter == kMlpLetter ? mlp_of(model.ffn_hidden_size)
                                                       : self_attention();
    return branch + norms_of_layer(1);
  }

  ParameterSum end() const { return shared(head(model), kinds.embedding); }
};

ParameterSum sum_of_list_layer(const ModelSpec& model, const LayerSpec& layer) {
  ParameterSum sum;
  for (const ParameterSpec& parameter : parameters_of(model, layer)) {
    double& part = parameter.split == TensorSplit::kReplicated ? sum.whole : sum.cut;
    part += static_cast<double>(parameter.rows) * static_cast<double>(parameter.cols);
  }
  return sum;
}

int64_t moe_block_count(const ModelSpec& model) {
  const int64_t rest = model.num_layers - model.first_dense_layers;
  if (model.num_experts == 0 || rest <= 0) return 0;
  return (rest + model.moe_layer_period - 1) / model.moe_layer_period;
}

std::vector<BlockParameters> blocks_of(const Parts& parts) {
  const ModelSpec& model = parts.model;
  std::vector<BlockParameters> blocks;
  const auto add = [&](LayerKind kind, const ParameterSum& each, int64_t count, bool experts) {
    if (count > 0) blocks.push_back({kind, each, count, experts});
  };
  if (is_hybrid(model)) {
    for (const char letter : {kMambaLetter, kAttentionLetter, kMlpLetter, kExpertsLetter}) {
      const bool experts = letter == kExpertsLetter;
      add(experts ? LayerKind::kMoeBlock : LayerKind::kBlock, parts.mixer(letter),
          letters(model, letter), experts);
    }
    return blocks;
  }
  const int64_t with_experts = moe_block_count(model);
  add(LayerKind::kBlock, parts.dense_block(), model.num_layers - with_experts, false);
  if (model.num_experts > 0) add(LayerKind::kMoeBlock, parts.moe_block(), with_experts, true);
  add(LayerKind::kCrossBlock, parts.cross_block(), model.decoder_layers, false);
  if (model.num_mtp_layers > 0) {
    add(LayerKind::kMtpBlock, parts.mtp_block(true), 1, parts.mtp_has_experts());
    add(LayerKind::kMtpBlock, parts.mtp_block(false), model.num_mtp_layers - 1,
        parts.mtp_has_experts());
  }
  return blocks;
}

ParameterCounts counts_of_list(const ModelSpec& model) {
  ParameterCounts counts;
  for (const LayerSpec& layer : layers_of(model)) {
    const ParameterSum sum = sum_of_list_layer(model, layer);
    if (makes_loss(layer.kind)) {
      counts.head = sum;
    } else {
      counts.blocks.push_back({layer.kind, sum, 1, false});
    }
  }
  return counts;
}

double sum_with(const ParameterCounts& counts, double experts) {
  double sum = counts.embedding.all() + counts.head.all();
  for (const BlockParameters& block : counts.blocks) {
    const double each = block.each.all() + (block.has_experts ? experts * counts.expert.all() : 0);
    sum += static_cast<double>(block.count) * each;
  }
  return sum;
}

}  // namespace

int64_t block_count(const ModelSpec& model) { return model.num_layers + model.decoder_layers; }

bool has_experts(const ModelSpec& model, int64_t block) {
  if (is_hybrid(model)) return layer_letter(model, block) == kExpertsLetter;
  return model.num_experts > 0 && block >= model.first_dense_layers &&
         (block - model.first_dense_layers) % model.moe_layer_period == 0;
}

bool has_experts(const ModelSpec& model, const LayerSpec& layer) {
  if (layer.kind == LayerKind::kMtpBlock) return has_experts(model, model.num_layers - 1);
  return layer.kind == LayerKind::kMoeBlock;
}

int64_t padded_vocab_rows(const ModelSpec& model, int64_t tensor_degree) {
  if (model.vocab_multiple_of == 1) return model.vocab_size;
  const int64_t multiple = model.vocab_multiple_of * tensor_degree;
  return (model.vocab_size + multiple - 1) / multiple * multiple;
}

ParameterSum parameters_of_layer(const ModelSpec& model, const LayerSpec& layer,
                                 const TensorKinds& kinds) {
  if (is_list(model)) return sum_of_list_layer(model, layer);
  const Parts parts{model, kinds};
  if (is_hybrid(model) && is_transformer_block(layer.kind)) {
    return parts.mixer(layer_letter(model, layer.index - 1));
  }
  switch (layer.kind) {
    case LayerKind::kEmbedding: return parts.embedding();
    case LayerKind::kBlock: return parts.dense_block();
    case LayerKind::kMoeBlock: return parts.moe_block();
    case LayerKind::kCrossBlock: return parts.cross_block();
    case LayerKind::kMtpBlock: return parts.mtp_block(mtp_depth(model, layer) == 1);
    case LayerKind::kHead: return parts.end();
    case LayerKind::kOperators:
    case LayerKind::kLastOperators: break;
  }
  check_failed(__FILE__, __LINE__, "an operator outside a list");
}

ParameterCounts parameter_counts(const ModelSpec& model, const TensorKinds& kinds) {
  if (is_list(model)) return counts_of_list(model);
  const Parts parts{model, kinds};
  ParameterCounts counts;
  counts.embedding = parts.embedding();
  counts.vocabulary = parts.vocabulary();
  counts.blocks = blocks_of(parts);
  if (model.num_experts > 0) {
    counts.expert = parts.expert();
    counts.experts = model.num_experts;
    counts.experts_per_token = model.experts_per_token;
  }
  counts.head = parts.end();
  return counts;
}

const BlockParameters& ParameterCounts::of(LayerKind kind) const {
  const auto found = std::find_if(blocks.begin(), blocks.end(),
                                  [&](const BlockParameters& block) { return block.kind == kind; });
  SMP_CHECK(found != blocks.end());
  return *found;
}

double ParameterCounts::total() const { return sum_with(*this, static_cast<double>(experts)); }

double ParameterCounts::active() const {
  return sum_with(*this, static_cast<double>(experts_per_token));
}

}  // namespace smp::model
