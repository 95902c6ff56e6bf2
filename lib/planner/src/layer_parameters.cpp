#include "layer_parameters.h"

#include <algorithm>
#include <cmath>

#include "smp/planner/habits.h"

namespace smp {
namespace {

double at_most_one_copy(int64_t heads, int64_t ranks) {
  return std::max(1.0, std::ceil(static_cast<double>(heads) / static_cast<double>(ranks)));
}

// Attention of one block on one rank: cut by tensor parallelism but for its last bias.
double attention_parameters(const ModelSpec& model, int64_t t) {
  const auto h = static_cast<double>(model.hidden_size);
  const double heads = at_most_one_copy(model.num_heads, t);
  if (model.kv_lora_rank > 0) {  // DeepSeek-V2, arXiv 2405.04434: the down projections are whole
    const auto query = static_cast<double>(model.qk_head_dim + model.qk_rope_head_dim);
    const auto q_rank = static_cast<double>(model.q_lora_rank);
    const auto kv_rank = static_cast<double>(model.kv_lora_rank);
    const auto rope = static_cast<double>(model.qk_rope_head_dim);
    const double queries =
        q_rank > 0 ? h * q_rank + q_rank + q_rank * heads * query : h * heads * query;
    const double keys = h * (kv_rank + rope) + kv_rank +
                        kv_rank * heads * static_cast<double>(model.qk_head_dim + model.v_head_dim);
    return queries + keys + heads * static_cast<double>(model.v_head_dim) * h;
  }
  const auto head = static_cast<double>(model.head_dim);
  const double kv_heads = at_most_one_copy(model.num_kv_heads, t);
  const double packed = (heads + 2 * kv_heads) * head;
  double count = packed * h + heads * head * h;
  if (model.qkv_bias) count += packed;
  if (model.attention_output_bias) count += h;
  if (model.qk_norm) count += 2 * head;
  return count;
}

double mlp_parameters(const ModelSpec& model, double width) {
  const auto h = static_cast<double>(model.hidden_size);
  const double up = is_gated(model.mlp) ? 2 : 1;
  return (up + 1) * h * width + (model.mlp_bias ? up * width + h : 0);
}

double norm_parameters(const ModelSpec& model) {
  return static_cast<double>(model.hidden_size) * (model.norm == NormKind::kLayerNorm ? 2 : 1);
}

}  // namespace

int64_t block_count(const ModelSpec& model) { return model.num_layers + model.decoder_layers; }

int64_t moe_block_count(const ModelSpec& model) {
  if (model.num_experts == 0) return 0;
  const int64_t after = std::max<int64_t>(0, block_count(model) - model.first_dense_layers);
  const int64_t period = std::max<int64_t>(1, model.moe_layer_period);
  return (after + period - 1) / period;
}

double vocabulary_rows(const JobSpec& job, const LayoutChoice& choice) {
  const Habits& habits = habits_of(job);
  const int64_t multiple = std::max<int64_t>(1, job.model.vocab_multiple_of) *
                           (habits.pads_vocabulary_per_rank ? choice.tensor : 1);
  const int64_t rows = (job.model.vocab_size + multiple - 1) / multiple * multiple;
  return std::ceil(static_cast<double>(rows) / static_cast<double>(choice.tensor));
}

void count_parameters(LayerBytes& layers, const JobSpec& job, const LayoutChoice& choice) {
  const ModelSpec& model = job.model;
  const auto h = static_cast<double>(model.hidden_size);
  const int64_t t = choice.tensor;
  const auto width = std::ceil(static_cast<double>(model.ffn_hidden_size) / static_cast<double>(t));
  const double norms = (model.shared_norm ? 1 : 2) * norm_parameters(model);
  double attention = attention_parameters(model, t);
  if (model.decoder_layers > 0) {  // decoders attend twice and have one norm more
    const double share =
        static_cast<double>(model.decoder_layers) / static_cast<double>(block_count(model));
    attention += share * (attention + norm_parameters(model));
  }
  layers.block_parameters = attention + norms + mlp_parameters(model, width);
  if (model.num_experts > 0) {
    const auto experts = static_cast<double>(model.num_experts);
    const double shared = static_cast<double>(model.shared_expert_ffn_hidden_size) / t;
    layers.moe_block_parameters = attention + norms + experts * h;  // the router is whole
    if (shared > 0) layers.moe_block_parameters += mlp_parameters(model, shared);
    const int64_t ffn =
        model.expert_ffn_hidden_size > 0 ? model.expert_ffn_hidden_size : model.ffn_hidden_size;
    layers.expert_parameters =
        experts / choice.expert *
        mlp_parameters(model, static_cast<double>(ffn) / std::max(1, choice.expert_tensor));
  }
  const double table = vocabulary_rows(job, choice) * h;
  layers.embedding_parameters = table;
  if (model.position_embedding == PositionKind::kLearned) {
    layers.embedding_parameters += static_cast<double>(model.max_positions) * h;
  }
  layers.head_parameters = norm_parameters(model);
  if (!model.tied_embeddings || choice.pipeline > 1) layers.head_parameters += table;
  if (model.head_bias) layers.head_parameters += vocabulary_rows(job, choice);
  layers.largest_layer_parameters =
      std::max({layers.block_parameters, layers.moe_block_parameters + layers.expert_parameters,
                layers.embedding_parameters, layers.head_parameters});
}

bool holds_head(const LayoutChoice& choice, int64_t stage) {
  return choice.schedule == PipelineKind::kZbV ? stage == 0 : stage + 1 == choice.pipeline;
}

StageParameters stage_parameters(const JobSpec& job, const LayoutChoice& choice,
                                 const LayerBytes& layers, int64_t stage) {
  const int64_t all = block_count(job.model);
  const auto blocks = static_cast<double>(stage_layers(choice, all, stage));
  const int64_t moe = moe_block_count(job.model);
  StageParameters parameters;
  if (moe == 0) {
    parameters.dense = blocks * layers.block_parameters;
  } else {
    // The first layers are dense, and the others follow in turn.
    const int64_t before = [&] {
      int64_t sum = 0;
      for (int64_t earlier = 0; earlier < stage; ++earlier) {
        sum += stage_layers(choice, all, earlier);
      }
      return sum;
    }();
    const auto dense_first = static_cast<double>(std::clamp<int64_t>(
        job.model.first_dense_layers - before, 0, static_cast<int64_t>(blocks)));
    const double moe_blocks = (blocks - dense_first) /
                              static_cast<double>(std::max<int64_t>(1, job.model.moe_layer_period));
    parameters.dense =
        (blocks - moe_blocks) * layers.block_parameters + moe_blocks * layers.moe_block_parameters;
    parameters.experts = moe_blocks * layers.expert_parameters;
  }
  if (stage == 0) parameters.dense += layers.embedding_parameters;
  if (holds_head(choice, stage)) {
    const auto further = static_cast<double>(job.model.num_mtp_layers);
    const bool experts = moe > 0;
    parameters.dense += layers.head_parameters;
    parameters.dense +=
        further *
        ((experts ? layers.moe_block_parameters : layers.block_parameters) +
         2.0 * static_cast<double>(job.model.hidden_size * job.model.hidden_size) / choice.tensor);
    if (experts) parameters.experts += further * layers.expert_parameters;
  }
  return parameters;
}

}  // namespace smp
