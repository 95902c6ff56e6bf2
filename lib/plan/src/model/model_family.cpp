#include "smp/plan/model/model_family.h"

namespace smp::model {

void set_family(ModelSpec& model, ModelFamily family) {
  const bool gpt2 = family == ModelFamily::kGpt2;
  const bool llama = family == ModelFamily::kLlama;
  model.family = family;
  model.stack = Stack::kDecoder;
  model.mlp = llama ? MlpKind::kSwiglu : MlpKind::kGelu;
  model.norm = llama ? NormKind::kRmsNorm : NormKind::kLayerNorm;
  model.position_embedding = llama ? PositionKind::kRotary : PositionKind::kLearned;
  model.qkv_bias = gpt2;
  model.attention_output_bias = gpt2;
  model.mlp_bias = gpt2;
  model.head_bias = false;
  model.qk_norm = false;
  model.qk_norm_over = QkNormOver::kHead;
  model.attention_sinks = false;
  model.glu_limit = model.glu_offset = 0;
  model.parallel_residual = false;
  model.shared_norm = false;
  model.norm_placement = NormPlacement::kBefore;
}

bool has_blocks_of(const ModelSpec& model, ModelFamily family) {
  ModelSpec own;
  set_family(own, family);
  return model.stack == own.stack && model.mlp == own.mlp && model.norm == own.norm &&
         model.position_embedding == own.position_embedding && model.qkv_bias == own.qkv_bias &&
         model.attention_output_bias == own.attention_output_bias &&
         model.mlp_bias == own.mlp_bias && model.head_bias == own.head_bias &&
         model.qk_norm == own.qk_norm && model.attention_sinks == own.attention_sinks &&
         model.glu_limit == own.glu_limit && model.glu_offset == own.glu_offset &&
         model.parallel_residual == own.parallel_residual && model.shared_norm == own.shared_norm &&
         model.norm_placement == own.norm_placement && model.num_experts == 0 &&
         model.kv_lora_rank == 0 && model.num_mtp_layers == 0 && model.layer_pattern.empty();
}

namespace {

// Biases of the projections and norms of heads are those of plain attention alone.
bool has_latent_attention_of_engine(const ModelSpec& model) {
  return model.norm == NormKind::kRmsNorm && !model.qkv_bias && !model.qk_norm &&
         !model.attention_sinks && model.num_kv_heads == model.num_heads;
}

// Norms over all heads are RMS norms.
bool has_norms_of_engine(const ModelSpec& model) {
  return !model.qk_norm || model.qk_norm_over == QkNormOver::kHead ||
         model.norm == NormKind::kRmsNorm;
}

// Limits and offsets are those of experts.
bool has_dense_glu_of_engine(const ModelSpec& model) {
  return model.glu_limit == 0 && model.glu_offset == 0;
}

bool is_plain_decoder(const ModelSpec& model) {
  const PositionKind positions = model.position_embedding;
  return model.operators.empty() && model.stack == Stack::kDecoder &&
         positions != PositionKind::kAlibi && positions != PositionKind::kRelative &&
         (model.kv_lora_rank == 0 || has_latent_attention_of_engine(model)) &&
         has_norms_of_engine(model) && model.norm_placement == NormPlacement::kBefore &&
         model.layer_pattern.empty() && model.mlp != MlpKind::kSquaredRelu &&
         model.vision_parameters == 0;
}

}  // namespace

bool is_dense_decoder(const ModelSpec& model) {
  return model.num_experts == 0 && is_plain_decoder(model) && has_dense_glu_of_engine(model);
}

bool is_mixture_decoder(const ModelSpec& model) {
  const bool all_blocks = model.first_dense_layers == 0 && model.moe_layer_period == 1;
  const bool has_shared_bias = model.mlp_bias && model.shared_expert_ffn_hidden_size > 0;
  return model.num_experts > 0 && is_plain_decoder(model) && !model.parallel_residual &&
         !has_shared_bias && !model.pad_experts_to_capacity &&
         (all_blocks || has_dense_glu_of_engine(model));
}

bool is_dense_encoder_decoder(const ModelSpec& model) {
  return model.stack == Stack::kEncoderDecoder &&
         model.position_embedding == PositionKind::kRelative && !model.parallel_residual &&
         model.kv_lora_rank == 0 && !model.attention_sinks && has_dense_glu_of_engine(model) &&
         (!model.qk_norm || model.qk_norm_over == QkNormOver::kHead);
}

}  // namespace smp::model
