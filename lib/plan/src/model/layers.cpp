#include "smp/plan/model/layers.h"

#include <algorithm>
#include <cmath>

#include "smp/plan/base/check.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/spec/seen_pairs.h"

namespace smp::model {
namespace {}  // namespace

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
    add(LayerKind::kMtpBlock, "mtp_layers." + std::to_string(i));
  }
  add(LayerKind::kHead, "head", BatchField::kTargets);
  return layers;
}

int64_t kv_copies(const ModelSpec& model, int64_t tensor_degree) {
  if (is_list(model)) return 1;
  return std::max<int64_t>(1, tensor_degree / model.num_kv_heads);
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

double head_scale(const ModelSpec& model) {
  const bool scaled = model.stack == Stack::kEncoderDecoder && model.tied_embeddings;
  return scaled ? 1 / std::sqrt(static_cast<double>(model.hidden_size)) : 1;
}

double score_scale(const ModelSpec& model) {
  if (model.position_embedding == PositionKind::kRelative) return 1;
  return 1 / std::sqrt(static_cast<double>(model.head_dim));
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
      cut(parameter.rows, tensor_degree, tensor_rank, box.row_begin, box.row_end);
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

LayerFlops flops_of(const ModelSpec& model, const LayerSpec& layer, const LayerCall& call) {
  if (layer.kind == LayerKind::kEmbedding) return {};
  if (is_list(model)) {
    const double multiply_adds = operator_multiply_adds(model, layer, call);
    // The batch itself needs no gradient.
    return {.forward = 2 * multiply_adds, .backward = (layer.index == 0 ? 2 : 4) * multiply_adds};
  }
  const double b = static_cast<double>(call.micro_batch);
  const double s = static_cast<double>(call.sequence_length);
  const bool is_head = layer.kind == LayerKind::kHead;
  double multiply_adds = 0;
  for (const ParameterSpec& parameter : parameters_of(model, layer, call.kinds)) {
    if (parameter.is_vector) continue;
    const Box box = tensor_box(model, parameter, call.tensor_degree, call.tensor_rank);
    // An encoder's pooler and classifier read the first token alone.
    const bool first_token = is_head && (parameter.name == "head.pooler.weight" ||
                                         parameter.name == "head.next_sentence.weight");
    double tokens = first_token ? b : b * s;
    if (parameter.is_expert) {
      tokens *=
          static_cast<double>(model.experts_per_token) / static_cast<double>(model.num_experts);
    }
    multiply_adds += tokens * static_cast<double>(box.size());
  }
  const int64_t vocabulary_rows = call.part_of(padded_vocab_rows(model), call.kinds.embedding);
  const double projection = b * s * static_cast<double>(vocabulary_rows * model.hidden_size);
  if (is_head) {
    if (model.tied_embeddings) multiply_adds += projection;
  } else {
    // Scores and weighted values of each head: s x s pairs, fewer where attention is causal,
    // of as many multiply-adds as queries and values are wide.
    const bool latent = model.kv_lora_rank > 0;
    const int64_t query = latent ? model.qk_head_dim + model.qk_rope_head_dim : model.head_dim;
    const int64_t value = latent ? model.v_head_dim : model.head_dim;
    const double width = static_cast<double>(model.num_heads * (query + value)) /
                         static_cast<double>(call.attention_degree());
    const bool in_encoder = model.stack != Stack::kDecoder && layer.kind != LayerKind::kCrossBlock;
    double pairs = in_encoder ? s * s : seen_pairs(model, s);
    if (layer.kind == LayerKind::kCrossBlock) pairs += s * s;
    multiply_adds += b * pairs * width;
    if (layer.kind == LayerKind::kMtpBlock) multiply_adds += projection;
  }
  // Backward multiplies each pair of operands twice: once for each operand's gradient.
  return {.forward = 2 * multiply_adds, .backward = 4 * multiply_adds};
}

}  // namespace smp::model
