#include "smp/plan/model/parameter_counts.h"

#include <cmath>

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

ParameterSum head(const ModelSpec& model, double vocabulary_rows) {
  const auto h = static_cast<double>(model.hidden_size);
  ParameterSum sum = norms(model, model.stack == Stack::kEncoderDecoder ? 2 : 1);
  if (!model.tied_embeddings) sum.cut += vocabulary_rows * h;
  if (model.head_bias) sum.cut += vocabulary_rows;
  if (model.stack == Stack::kEncoder) {
    // BERT: transform and its norm, pooler, next-sentence classifier.
    sum.whole += 2 * (h * h + h) + norm_size(model, h) + 2 * h + 2;
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

int64_t padded_vocab_rows(const ModelSpec& model, int64_t tensor_degree) {
  if (model.vocab_multiple_of == 1) return model.vocab_size;
  const int64_t multiple = model.vocab_multiple_of * tensor_degree;
  return (model.vocab_size + multiple - 1) / multiple * multiple;
}

namespace {

// A block is then the mean of all layers but the last; the embedding has what that leaves over.
ParameterCounts counts_of_list(const ModelSpec& model) {
  ParameterCounts counts;
  for (const LayerSpec& layer : layers_of(model)) {
    ParameterSum& sum = makes_loss(layer.kind) ? counts.head : counts.block;
    for (const ParameterSpec& parameter : parameters_of(model, layer)) {
      double& part = parameter.split == TensorSplit::kReplicated ? sum.whole : sum.cut;
      part += static_cast<double>(parameter.rows) * static_cast<double>(parameter.cols);
    }
  }
  counts.blocks = model.num_layers;
  const auto blocks = static_cast<double>(counts.blocks);
  for (double ParameterSum::*part : {&ParameterSum::cut, &ParameterSum::whole}) {
    const double all = counts.block.*part;
    counts.block.*part = std::floor(all / blocks);
    counts.embedding.*part = all - blocks * counts.block.*part;
  }
  return counts;
}

}  // namespace

namespace {

double norms_of_mixer(const ModelSpec& model) {
  return model.norm_placement == NormPlacement::kBoth ? 2 : 1;
}

int64_t moe_block_count(const ModelSpec& model) {
  if (is_hybrid(model)) return letters(model, kExpertsLetter);
  const int64_t rest = model.num_layers - model.first_dense_layers;
  return rest > 0 ? (rest + model.moe_layer_period - 1) / model.moe_layer_period : 0;
}

// A block of a hybrid is the mean of its layers without experts.
void set_mean_of_mixers(ParameterCounts& counts, const ModelSpec& model, const TensorKinds& kinds) {
  const ParameterSum attention_layer =
      shared(model.kv_lora_rank > 0 ? latent_attention(model) : attention(model), kinds.attention);
  const ParameterSum mamba_layer = shared(mamba(model), kinds.attention);
  const ParameterSum mlp_layer = shared(mlp(model, model.ffn_hidden_size), kinds.mlp);
  const auto mambas = static_cast<double>(letters(model, kMambaLetter));
  const auto attentions = static_cast<double>(letters(model, kAttentionLetter));
  const auto mlps = static_cast<double>(letters(model, kMlpLetter));
  const double all = mambas + attentions + mlps;
  counts.block = {};
  if (all == 0) return;
  for (double ParameterSum::*part : {&ParameterSum::cut, &ParameterSum::kv, &ParameterSum::whole}) {
    counts.block.*part =
        (mambas * mamba_layer.*part + attentions * attention_layer.*part + mlps * mlp_layer.*part) /
        all;
  }
  counts.block = counts.block + norms(model, norms_of_mixer(model));
}

}  // namespace

ParameterCounts parameter_counts(const ModelSpec& model, const TensorKinds& kinds) {
  if (is_list(model)) return counts_of_list(model);
  const auto h = static_cast<double>(model.hidden_size);
  const auto rows = static_cast<double>(padded_vocab_rows(model));
  ParameterCounts counts;
  counts.vocabulary.cut = rows * h;
  counts.embedding = counts.vocabulary;
  if (model.position_embedding == PositionKind::kLearned) {
    counts.embedding.whole += static_cast<double>(model.max_positions) * h;
  }
  if (model.stack == Stack::kEncoder) {
    counts.embedding.whole += static_cast<double>(kTokenTypes) * h;
  }
  const auto tower = static_cast<double>(model.vision_parameters);

  counts.embedding = shared(counts.embedding, kinds.embedding);
  counts.vocabulary = shared(counts.vocabulary, kinds.embedding);
  if (model.position_embedding == PositionKind::kRelative) {
    const double tables = model.stack == Stack::kEncoderDecoder ? 2 : 1;
    const double numbers = static_cast<double>(kRelativeBuckets * model.num_heads);
    counts.embedding = counts.embedding + shared({.cut = tables * numbers}, kinds.attention);
  }

  counts.embedding.whole += tower;

  const auto mlp_of = [&](int64_t width) { return shared(mlp(model, width), kinds.mlp); };
  const ParameterSum self =
      shared(model.kv_lora_rank > 0 ? latent_attention(model) : attention(model), kinds.attention);
  const double placed = norms_of_mixer(model);
  const ParameterSum core = self + norms(model, placed * (model.shared_norm ? 1 : 2));
  counts.block = core + mlp_of(model.ffn_hidden_size);
  counts.cross_block = counts.block + shared(attention(model), kinds.attention) + norms(model, 1);
  counts.blocks = model.num_layers;
  counts.cross_blocks = model.decoder_layers;
  if (is_hybrid(model)) set_mean_of_mixers(counts, model, kinds);
  if (model.num_experts > 0) {
    counts.expert = mlp_of(model.expert_ffn_hidden_size);
    counts.moe_block = is_hybrid(model) ? norms(model, placed) : core;
    counts.moe_block.whole += h * static_cast<double>(model.num_experts);
    if (model.router_bias) counts.moe_block.whole += static_cast<double>(model.num_experts);
    if (model.router_correction_bias) {
      counts.moe_block.whole += static_cast<double>(model.num_experts);
    }
    if (model.shared_expert_ffn_hidden_size > 0) {
      counts.moe_block = counts.moe_block + mlp_of(model.shared_expert_ffn_hidden_size);
      if (model.shared_expert_gate) counts.moe_block.whole += h;
    }
    counts.moe_blocks = moe_block_count(model);
    counts.blocks -= counts.moe_blocks;
    counts.experts = model.num_experts;
    counts.experts_per_token = model.experts_per_token;
  }
  if (model.num_mtp_layers > 0) {
    counts.mtp_blocks = model.num_mtp_layers;
    counts.mtp_has_experts = has_experts(model, model.num_layers - 1);
    counts.mtp_block = (counts.mtp_has_experts ? counts.moe_block : counts.block) +
                       norms(model, 3) + ParameterSum{.cut = 2 * h * h};
  }
  counts.head = shared(head(model, rows), kinds.embedding);
  return counts;
}

namespace {

double sum_with(const ParameterCounts& counts, double experts) {
  const auto moe_blocks = static_cast<double>(counts.moe_blocks) +
                          (counts.mtp_has_experts ? static_cast<double>(counts.mtp_blocks) : 0);
  return counts.embedding.all() + static_cast<double>(counts.blocks) * counts.block.all() +
         static_cast<double>(counts.moe_blocks) * counts.moe_block.all() +
         static_cast<double>(counts.cross_blocks) * counts.cross_block.all() +
         static_cast<double>(counts.mtp_blocks) * counts.mtp_block.all() +
         moe_blocks * experts * counts.expert.all() + counts.head.all();
}

}  // namespace

double ParameterCounts::total() const { return sum_with(*this, static_cast<double>(experts)); }

double ParameterCounts::active() const {
  return sum_with(*this, static_cast<double>(experts_per_token));
}

}  // namespace smp::model
