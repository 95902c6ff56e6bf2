#pragma once

#include "smp/plan/model/model_family.h"

// Models that several tests share: published ones, and two small ones that divide badly on purpose.
namespace smp {

inline ModelSpec gpt2_sized(int64_t layers, int64_t hidden, int64_t heads) {
  ModelSpec model;
  model.name = "gpt2";
  model::set_family(model, ModelFamily::kGpt2);
  model.num_layers = layers;
  model.hidden_size = hidden;
  model.num_heads = heads;
  model.num_kv_heads = heads;
  model.head_dim = hidden / heads;
  model.ffn_hidden_size = 4 * hidden;
  model.vocab_size = 50257;
  model.max_positions = 1024;
  model.tied_embeddings = true;
  return model;
}
inline ModelSpec gpt2_124m() { return gpt2_sized(12, 768, 12); }
inline ModelSpec gpt2_1558m() { return gpt2_sized(48, 1600, 25); }

inline ModelSpec llama_sized(int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads,
                             int64_t ffn, int64_t vocab) {
  ModelSpec model;
  model.name = "llama";
  model::set_family(model, ModelFamily::kLlama);
  model.num_layers = layers;
  model.hidden_size = hidden;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.head_dim = hidden / heads;
  model.ffn_hidden_size = ffn;
  model.vocab_size = vocab;
  model.max_positions = 4096;
  return model;
}
inline ModelSpec llama2_7b() { return llama_sized(32, 4096, 32, 32, 11008, 32000); }
inline ModelSpec llama2_13b() { return llama_sized(40, 5120, 40, 40, 13824, 32000); }
inline ModelSpec llama2_70b() { return llama_sized(80, 8192, 64, 8, 28672, 32000); }
inline ModelSpec llama3_8b() { return llama_sized(32, 4096, 32, 8, 14336, 128256); }

// 5 layers and 257 rows of vocabulary: nothing divides.
inline ModelSpec small_gpt2() {
  ModelSpec model = gpt2_sized(5, 48, 4);
  model.vocab_size = 257;
  model.max_positions = 16;
  return model;
}
inline ModelSpec small_llama() { return llama_sized(5, 32, 4, 2, 88, 131); }

}  // namespace smp
