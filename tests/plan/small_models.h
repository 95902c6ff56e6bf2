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

}  // namespace smp::test
