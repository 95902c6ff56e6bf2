#pragma once

#include <vector>

#include "smp/plan/model/model_family.h"
#include "smp/plan/spec/job_spec.h"

// Tiny transformers of every kind that the engine runs, for tests.
namespace smp::test {

inline ModelSpec small_gpt2() {
  ModelSpec model;
  model::set_family(model, ModelFamily::kGpt2);
  model.num_layers = 2;
  model.hidden_size = 16;
  model.num_heads = model.num_kv_heads = 4;
  model.head_dim = 4;
  model.ffn_hidden_size = 64;
  model.vocab_size = 37;
  model.max_positions = 80;
  model.tied_embeddings = true;
  return model;
}

inline ModelSpec small_llama() {
  ModelSpec model = small_gpt2();
  model::set_family(model, ModelFamily::kLlama);
  model.num_kv_heads = 2;
  model.ffn_hidden_size = 40;
  model.tied_embeddings = false;
  return model;
}

inline ModelSpec small_t5() {
  ModelSpec model = small_gpt2();
  model.name = "t5";
  model.stack = Stack::kEncoderDecoder;
  model.decoder_layers = 3;
  model.norm = NormKind::kRmsNorm;
  model.mlp = MlpKind::kRelu;
  model.position_embedding = PositionKind::kRelative;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
  model.head_dim = 6;
  return model;
}

inline ModelSpec small_t5_gated() {
  ModelSpec model = small_t5();
  model.name = "t5 1.1";
  model.decoder_layers = 1;
  model.mlp = MlpKind::kGeglu;
  model.tied_embeddings = false;
  return model;
}

inline std::vector<ModelSpec> small_others() {
  ModelSpec qwen2 = small_llama();
  qwen2.name = "qwen2";
  qwen2.qkv_bias = true;
  qwen2.rope_scaling = RopeScaling::kLinear;
  qwen2.rope_scaling_factor = 3;
  ModelSpec qwen3 = small_llama();
  qwen3.name = "qwen3";
  qwen3.qk_norm = true;
  qwen3.head_dim = 6;  // heads are wider together than the hidden state
  ModelSpec llama31 = small_llama();
  llama31.name = "llama 3.1";
  llama31.head_dim = 8;  // a frequency on each side of the range that is stretched, and two within
  llama31.rope_scaling = RopeScaling::kLlama3;
  llama31.rope_scaling_factor = 4;
  llama31.rope_original_positions = 16;
  ModelSpec neox = small_gpt2();
  neox.name = "neox";
  neox.position_embedding = PositionKind::kRotary;
  neox.parallel_residual = true;
  neox.gelu = GeluKind::kErf;
  neox.rotary_dim = 2;
  neox.tied_embeddings = false;
  ModelSpec phi = neox;
  phi.name = "phi";
  phi.shared_norm = true;
  phi.head_bias = true;
  ModelSpec gemma = small_llama();
  gemma.name = "gemma";
  gemma.mlp = MlpKind::kGeglu;
  gemma.gelu = GeluKind::kErf;
  gemma.tied_embeddings = true;
  ModelSpec relu = small_gpt2();
  relu.name = "relu, no positions, norms of heads";
  relu.mlp = MlpKind::kRelu;
  relu.position_embedding = PositionKind::kNone;
  relu.qk_norm = true;
  relu.qkv_bias = true;
  relu.mlp_bias = relu.attention_output_bias = false;
  ModelSpec gated = small_llama();
  gated.name = "SwiGLU with biases, LayerNorm, learned positions";
  gated.norm = NormKind::kLayerNorm;
  gated.position_embedding = PositionKind::kLearned;
  gated.mlp_bias = gated.attention_output_bias = true;
  gated.head_bias = true;
  return {qwen2, qwen3, llama31, neox, phi, gemma, relu, gated};
}

// Decoders with other attention: norms over all heads, behind biases; sinks of heads, with windows
// in every other layer.
inline std::vector<ModelSpec> small_attentions() {
  ModelSpec norms = small_llama();
  norms.name = "norms over all heads";
  norms.qk_norm = norms.qkv_bias = true;
  norms.qk_norm_over = QkNormOver::kAllHeads;
  ModelSpec sinks = small_llama();
  sinks.name = "sinks, windows in every other layer";
  sinks.attention_sinks = sinks.qkv_bias = true;
  sinks.sliding_window = 3;
  sinks.full_attention_period = 2;
  sinks.mlp = MlpKind::kGelu;
  sinks.gelu = GeluKind::kSigmoid;
  return {norms, sinks};
}

// Mixtures of experts: softmax routers as Mixtral's and Qwen's, the latter with an expert for all
// tokens and its gate, OLMoE's norms over all heads, gpt-oss with biases and limits, and
// DeepSeek-V3's sigmoids in groups behind a dense layer, with plain and latent attention.
inline std::vector<ModelSpec> small_mixtures() {
  ModelSpec mixtral = small_llama();
  mixtral.name = "mixtral";
  mixtral.num_experts = 4;
  mixtral.experts_per_token = 2;
  mixtral.expert_ffn_hidden_size = 24;
  ModelSpec qwen = mixtral;
  qwen.name = "qwen2 moe";
  qwen.qkv_bias = true;
  qwen.num_experts = 5;
  qwen.experts_per_token = 3;
  qwen.normalize_expert_weights = false;
  qwen.shared_expert_ffn_hidden_size = 20;
  qwen.shared_expert_gate = true;
  ModelSpec deepseek = mixtral;
  deepseek.name = "deepseek";
  deepseek.num_layers = 3;
  deepseek.first_dense_layers = 1;
  deepseek.num_experts = 6;
  deepseek.router = RouterKind::kSigmoid;
  deepseek.routed_scaling_factor = 2.5;
  deepseek.router_correction_bias = true;
  deepseek.expert_groups = 3;
  deepseek.expert_groups_per_token = 2;
  deepseek.shared_expert_ffn_hidden_size = 24;
  ModelSpec latent = deepseek;  // of which queries have no latent, as in DeepSeek-V2-Lite
  latent.name = "deepseek v2 lite";
  latent.num_kv_heads = latent.num_heads;
  latent.kv_lora_rank = 10;
  latent.qk_head_dim = 6;
  latent.qk_rope_head_dim = 4;
  latent.v_head_dim = 5;
  latent.head_dim = 10;
  ModelSpec whole = latent;
  whole.name = "deepseek v3";
  whole.q_lora_rank = 12;
  ModelSpec ungated = mixtral;
  ungated.name = "without gates";
  ungated.mlp = MlpKind::kGelu;
  ungated.tied_embeddings = true;
  ungated.mlp_bias = true;
  ModelSpec olmoe = mixtral;
  olmoe.name = "olmoe";
  olmoe.qk_norm = true;
  olmoe.qk_norm_over = QkNormOver::kAllHeads;
  olmoe.normalize_expert_weights = false;
  ModelSpec gpt_oss = mixtral;
  gpt_oss.name = "gpt-oss";
  gpt_oss.qkv_bias = gpt_oss.attention_output_bias = gpt_oss.mlp_bias = true;
  gpt_oss.attention_sinks = gpt_oss.router_bias = true;
  gpt_oss.sliding_window = 3;
  gpt_oss.full_attention_period = 2;
  gpt_oss.mlp = MlpKind::kGeglu;
  gpt_oss.gelu = GeluKind::kSigmoid;
  gpt_oss.glu_limit = 0.4;  // some of the experts' factors are beyond it
  gpt_oss.glu_offset = 1;
  return {mixtral, qwen, deepseek, latent, whole, ungated, olmoe, gpt_oss};
}

}  // namespace smp::test
