#include "huggingface/huggingface_class.h"

#include "smp/plan/model/model_family.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::huggingface {
namespace {

using Class = HuggingFaceClass;

// For a model whose blocks differ from Llama's only in biases, norms of heads and the gate's
// activation.
Class llama_class_of(const ModelSpec& model) {
  const bool all_biases = model.qkv_bias == model.attention_output_bias;
  const bool windowed = model.sliding_window > 0;
  if (model.full_attention_period > 0 || model.chunked_windows) return Class::kNone;
  if (model.qk_norm && model.qk_norm_over == QkNormOver::kAllHeads) return Class::kNone;
  if (model.qk_norm)
    return all_biases && !model.mlp_bias && !windowed ? Class::kQwen3 : Class::kNone;
  if (!all_biases) {
    return model.qkv_bias && !model.mlp_bias && !windowed ? Class::kQwen2 : Class::kNone;
  }
  if (!windowed) return Class::kLlama;
  return model.qkv_bias || model.mlp_bias ? Class::kNone : Class::kMistral;
}

// Softmax routers without groups or capacity, and experts in all layers that are the only ones.
bool has_plain_experts(const ModelSpec& model) {
  return model.num_experts > 0 && model.router == RouterKind::kSoftmax &&
         model.routed_scaling_factor == 1 && model.expert_groups == 1 &&
         !model.router_correction_bias && model.expert_capacity_factor == 0 &&
         model.shared_expert_ffn_hidden_size == 0 && model.first_dense_layers == 0 &&
         model.moe_layer_period == 1;
}

bool is_olmoe(const ModelSpec& model) {
  return has_plain_experts(model) && model.qk_norm && model.qk_norm_over == QkNormOver::kAllHeads &&
         !model.router_bias && !model.mlp_bias && model.qkv_bias == model.attention_output_bias &&
         model.sliding_window == 0 && model.head_dim * model.num_heads == model.hidden_size;
}

// Biases, sinks and limits, which are not Llama's.
bool is_gpt_oss(const ModelSpec& model) {
  return has_plain_experts(model) && model.normalize_expert_weights && model.attention_sinks &&
         model.mlp == MlpKind::kGeglu && model.gelu == GeluKind::kSigmoid &&
         model.glu_limit == kGptOssLimit && model.glu_offset == 1 && model.router_bias &&
         model.mlp_bias && !model.qk_norm && model.qkv_bias == model.attention_output_bias &&
         model.sliding_window > 0 && !model.chunked_windows && model.kv_lora_rank == 0 &&
         rotary_dim_of(model) == model.head_dim;
}

// Which layers have experts is said by a period, or by the dense layers before them.
bool has_layers_of_qwen(const ModelSpec& model) {
  return model.moe_layer_period == 1 || model.first_dense_layers == model.moe_layer_period - 1;
}

// For a mixture whose experts are SwiGLU or GeGLU, and whose attention is Llama's as above.
Class mixture_class_of(const ModelSpec& model) {
  const bool shared = model.shared_expert_ffn_hidden_size > 0;
  if (model.router != RouterKind::kSoftmax || model.routed_scaling_factor != 1 ||
      model.expert_groups > 1 || model.router_correction_bias || model.router_bias ||
      model.expert_capacity_factor > 0 || model.mlp_bias) {
    return Class::kNone;
  }
  if (is_olmoe(model)) return Class::kOlmoe;
  switch (llama_class_of(model)) {
    case Class::kLlama:
    case Class::kMistral:
      return !shared && !model.qkv_bias && model.normalize_expert_weights &&
                     model.first_dense_layers == 0 && model.moe_layer_period == 1
                 ? Class::kMixtral
                 : Class::kNone;
    case Class::kQwen2:
      return shared && model.shared_expert_gate && has_layers_of_qwen(model) ? Class::kQwen2Moe
                                                                             : Class::kNone;
    case Class::kQwen3:
      return !shared && has_layers_of_qwen(model) ? Class::kQwen3Moe : Class::kNone;
    default: return Class::kNone;
  }
}

// DeepSeek's experts: dense layers in front, and shared experts without a gate; of V3 and GLM-4.5 a
// sigmoid router with a correction bias.
Class deepseek_class_of(const ModelSpec& model) {
  const int64_t shared = model.shared_expert_ffn_hidden_size;
  if (shared == 0 || shared % model.expert_ffn_hidden_size != 0 || model.shared_expert_gate ||
      model.moe_layer_period > 1 || model.expert_capacity_factor > 0 || model.mlp_bias ||
      model.router_bias || (model.qk_norm && model.qk_norm_over == QkNormOver::kAllHeads) ||
      model.attention_output_bias || model.sliding_window > 0 || model.full_attention_period > 0) {
    return Class::kNone;
  }
  const bool sigmoid = model.router == RouterKind::kSigmoid;
  if (sigmoid != model.router_correction_bias) return Class::kNone;
  if (model.kv_lora_rank == 0) return sigmoid ? Class::kGlm4Moe : Class::kNone;
  if (model.qkv_bias || model.qk_norm || model.num_kv_heads != model.num_heads) return Class::kNone;
  if (sigmoid) return Class::kDeepseekV3;
  return model.normalize_expert_weights ? Class::kNone : Class::kDeepseekV2;
}

bool has_blocks_of_phi(const ModelSpec& model) {
  return model.norm == NormKind::kLayerNorm && model.qkv_bias && model.attention_output_bias &&
         model.mlp_bias && model.head_bias && !model.qk_norm && !model.attention_sinks &&
         model.parallel_residual && model.shared_norm && !model.tied_embeddings &&
         model::is_dense_decoder(model);
}

// T5's dense MLP is ReLU, or gated by GELU (in its tanh form) or SiLU.
bool is_t5(const ModelSpec& model) {
  return model::is_dense_encoder_decoder(model) && model.norm == NormKind::kRmsNorm &&
         model.mlp != MlpKind::kGelu &&
         (model.mlp != MlpKind::kGeglu || model.gelu == GeluKind::kTanh) &&
         model.num_kv_heads == model.num_heads && !model.qkv_bias && !model.attention_output_bias &&
         !model.mlp_bias && !model.head_bias && !model.qk_norm;
}

}  // namespace

HuggingFaceClass class_of(const ModelSpec& model) {
  if (model.num_mtp_layers > 0) {
    ModelSpec next = model;
    next.num_mtp_layers = 0;
    const Class of_next = class_of(next);
    const bool has_further = of_next == Class::kDeepseekV3 || of_next == Class::kGlm4Moe;
    return has_further ? of_next : Class::kNone;
  }
  if (is_t5(model)) return Class::kT5;
  const bool rotary = model.position_embedding == PositionKind::kRotary;
  if (!is_gated(model.mlp)) {
    ModelSpec gelu = model;
    gelu.mlp = MlpKind::kGelu;  // both classes take another activation
    if (model.sliding_window > 0) return Class::kNone;
    if (model::has_blocks_of(gelu, ModelFamily::kGpt2)) return Class::kGpt2;
    return rotary && has_blocks_of_phi(model) ? Class::kPhi : Class::kNone;
  }
  ModelSpec plain = model;
  plain.mlp = MlpKind::kSwiglu;
  plain.qkv_bias = plain.attention_output_bias = plain.mlp_bias = plain.qk_norm = false;
  plain.num_experts = plain.kv_lora_rank = 0;
  const bool gpt_oss = is_gpt_oss(model);
  if (gpt_oss) {
    plain.attention_sinks = false;
    plain.glu_limit = plain.glu_offset = 0;
  }
  if (!rotary || !model::has_blocks_of(plain, ModelFamily::kLlama)) return Class::kNone;
  if (gpt_oss) return Class::kGptOss;
  if (model.num_experts > 0) {
    const Class deepseek = deepseek_class_of(model);
    if (deepseek != Class::kNone) return deepseek;
  }
  if (model.kv_lora_rank > 0 || rotary_dim_of(model) != model.head_dim) return Class::kNone;
  return model.num_experts > 0 ? mixture_class_of(model) : llama_class_of(model);
}

}  // namespace smp::huggingface
