#include <algorithm>
#include <cmath>

#include "smp/plan/base/check.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::model {

std::vector<LayerSpec> layers_of(const ModelSpec& model) {
  if (is_list(model)) return operator_layers(model);
  std::vector<LayerSpec> layers;
  const auto add = [&](LayerKind kind, std::string name,
                       std::optional<BatchField> reads = std::nullopt) {
    layers.push_back({kind, static_cast<int64_t>(layers.size()), std::move(name), reads, 0, 0});
  };
  add(LayerKind::kEmbedding, "embedding", BatchField::kTokens);
  for (int64_t i = 0; i < model.num_layers; ++i) {
    add(has_experts(model, i) ? LayerKind::kMoeBlock : LayerKind::kBlock,
        "layers." + std::to_string(i));
  }
  for (int64_t i = 0; i < model.decoder_layers; ++i) {
    add(LayerKind::kCrossBlock, "decoder_layers." + std::to_string(i));
  }
  for (int64_t i = 0; i < model.num_mtp_layers; ++i) {
    add(LayerKind::kMtpBlock, "mtp_layers." + std::to_string(i), BatchField::kFurtherTokens);
  }
  add(LayerKind::kHead, "head", BatchField::kTargets);
  return layers;
}

int64_t kv_copies(const ModelSpec& model, int64_t tensor_degree) {
  if (is_list(model) || model.kv_lora_rank > 0) return 1;
  return std::max<int64_t>(1, tensor_degree / model.num_kv_heads);
}

bool has_window(const ModelSpec& model, const LayerSpec& layer) {
  const int64_t period = model.full_attention_period;
  return model.sliding_window > 0 && (period == 0 || layer.index % period != 0);
}

bool is_in_encoder(const ModelSpec& model, const LayerSpec& layer) {
  return model.stack == Stack::kEncoderDecoder && is_transformer_block(layer.kind) &&
         layer.kind != LayerKind::kCrossBlock;
}

bool opens_decoder(const ModelSpec& model, const LayerSpec& layer) {
  return layer.kind == LayerKind::kCrossBlock && layer.index == model.num_layers + 1;
}

bool closes_stack(const ModelSpec& model, const LayerSpec& layer) {
  if (layer.kind == LayerKind::kCrossBlock) return layer.index == block_count(model);
  return is_in_encoder(model, layer) && layer.index == model.num_layers;
}

int64_t mtp_depth(const ModelSpec& model, const LayerSpec& layer) {
  SMP_CHECK(layer.kind == LayerKind::kMtpBlock);
  return layer.index - block_count(model);
}

bool reuses_embedding(const ModelSpec& model) {
  return model.tied_embeddings || model.num_mtp_layers > 0;
}

bool reuses_embedding(const ModelSpec& model, const LayerSpec& layer) {
  return layer.kind == LayerKind::kMtpBlock ||
         (layer.kind == LayerKind::kHead && model.tied_embeddings);
}

double head_scale(const ModelSpec& model) {
  const bool scaled = model.stack == Stack::kEncoderDecoder && model.tied_embeddings;
  return scaled ? 1 / std::sqrt(static_cast<double>(model.hidden_size)) : 1;
}

namespace {

// How much yarn sharpens the attention of stretched positions: m(x) = 0.1 x ln(factor) + 1.
double yarn_m(const ModelSpec& model, double x) {
  return 0.1 * x * std::log(std::max(1.0, model.rope_scaling_factor)) + 1;
}

// Of the scores of latent attention, as in DeepSeek-V3.
double latent_score_factor(const ModelSpec& model) {
  if (model.rope_scaling != RopeScaling::kYarn || model.rope_mscale_all_dim == 0) return 1;
  const double m = yarn_m(model, model.rope_mscale_all_dim);
  return m * m;
}

}  // namespace

double rope_attention_factor(const ModelSpec& model) {
  const bool is_long = model.rope_scaling == RopeScaling::kLongRope;
  if (model.rope_scaling != RopeScaling::kYarn && !is_long) return 1;
  if (model.rope_attention_factor > 0) return model.rope_attention_factor;
  if (is_long) {  // Ding et al. 2024, arXiv:2402.13753
    const double factor = std::log(std::max(1.0, model.rope_scaling_factor));
    return std::sqrt(1 + factor / std::log(static_cast<double>(model.rope_original_positions)));
  }
  if (model.rope_mscale > 0 && model.rope_mscale_all_dim > 0) {
    return yarn_m(model, model.rope_mscale) / yarn_m(model, model.rope_mscale_all_dim);
  }
  return yarn_m(model, 1);
}

double score_scale(const ModelSpec& model) {
  if (model.position_embedding == PositionKind::kRelative) return 1;
  const bool latent = model.kv_lora_rank > 0;
  const int64_t width = latent ? model.qk_head_dim + model.qk_rope_head_dim : model.head_dim;
  return (latent ? latent_score_factor(model) : 1) / std::sqrt(static_cast<double>(width));
}

Box expert_box(const ParameterSpec& parameter, int64_t degree, int64_t part) {
  const int64_t rows = parameter.rows / degree;
  return {part * rows, (part + 1) * rows, 0, parameter.cols};
}

Box parameter_box(const ModelSpec& model, const ParameterSpec& parameter, const LayerCall& call) {
  if (parameter.is_expert && call.expert_degree > 1) {
    return expert_box(parameter, call.expert_degree, 0);
  }
  return tensor_box(model, parameter, call.tensor_degree, call.tensor_rank);
}

Box tensor_box(const ModelSpec& model, const ParameterSpec& parameter, int64_t tensor_degree,
               int64_t tensor_rank) {
  SMP_CHECK(tensor_rank >= 0 && tensor_rank < tensor_degree);
  Box box{0, parameter.rows, 0, parameter.cols};
  // Cuts [0, count) for the part-th of `parts` ranks.
  const auto cut = [](int64_t count, int64_t parts, int64_t part, int64_t& begin, int64_t& end) {
    begin = mesh::part_begin(count, parts, part);
    end = begin + mesh::part_size(count, parts, part);
  };
  switch (parameter.split) {
    case TensorSplit::kReplicated: break;
    case TensorSplit::kRows:
      cut(parameter.rows / parameter.row_unit, tensor_degree, tensor_rank, box.row_begin,
          box.row_end);
      box.row_begin *= parameter.row_unit;
      box.row_end *= parameter.row_unit;
      break;
    case TensorSplit::kColumns:
      cut(parameter.cols / parameter.column_unit, tensor_degree, tensor_rank, box.col_begin,
          box.col_end);
      box.col_begin *= parameter.column_unit;
      box.col_end *= parameter.column_unit;
      break;
    case TensorSplit::kKvHeads: {
      const int64_t copies = kv_copies(model, tensor_degree);
      SMP_CHECK_EQ(tensor_degree % copies, 0);
      SMP_CHECK_EQ(model.num_kv_heads % (tensor_degree / copies), 0);
      cut(parameter.rows, tensor_degree / copies, tensor_rank / copies, box.row_begin, box.row_end);
      break;
    }
  }
  return box;
}

}  // namespace smp::model
