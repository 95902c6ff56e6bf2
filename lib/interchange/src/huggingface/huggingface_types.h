#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "smp/plan/text/json.h"

// The one table of Hugging Face model types: class, keys of config.json, and the values that
// transformers takes for absent keys. The importer, the writer of config.json and the check of a
// foreign config.json read it. Source: transformers 4.57, models/*/configuration_*.py. Immutable;
// safe from any thread.
namespace smp::huggingface {

// A class of transformers. kNone: a model that no class of transformers computes.
enum class HuggingFaceClass {
  kDeepseekV2,
  kDeepseekV3,
  kGlm4Moe,
  kGpt2,
  kGptNeoX,
  kGptOss,
  kLlama,
  kMistral,
  kMixtral,
  kOlmoe,
  kPhi,
  kQwen2,
  kQwen2Moe,
  kQwen3,
  kQwen3Moe,
  kT5,
  kNone
};

// Types whose blocks are built alike.
enum class HuggingFaceBlocks { kLlama, kGpt2, kNeoX, kPhi, kT5 };

// Keys of config.json whose spelling differs between types. "": the type has no such key.
struct HuggingFaceKeys {
  std::string_view hidden = "hidden_size";
  std::string_view layers = "num_hidden_layers";
  std::string_view heads = "num_attention_heads";
  std::string_view kv_heads = "num_key_value_heads";
  std::string_view head_dim = "head_dim";
  std::string_view ffn = "intermediate_size";
  std::string_view positions = "max_position_embeddings";
  std::string_view epsilon = "rms_norm_eps";
  std::string_view activation = "hidden_act";
  std::string_view rope_theta = "rope_theta";
  std::string_view rotary_share = "partial_rotary_factor";
  std::string_view attention_dropout = "attention_dropout";
  std::string_view hidden_dropout = "";
  std::string_view qkv_bias = "";
  std::string_view output_bias = "";
  std::string_view mlp_bias = "";
  std::string_view qk_norm = "";
  std::string_view parallel_residual = "";
};

// Sizes where their keys are absent.
struct HuggingFaceSizes {
  int64_t hidden, layers, heads;
  int64_t kv_heads;  // 0 = as many as heads
  int64_t head_dim;  // 0 = hidden / heads
  int64_t ffn;       // 0 = 4 x hidden
  int64_t vocab;
  int64_t positions;  // 0 = the type has no such limit
};

// Attributes where their keys are absent, or where the type has no key for them.
struct HuggingFaceDefaults {
  double epsilon = 1e-6;
  std::string_view activation = "silu";
  bool tied = false;
  double rope_theta = 1e4;
  double rotary_share = 1;  // share of a head's elements that rotary positions turn
  double dropout = 0;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false, parallel_residual = false;
  bool norms_over_all_heads = false;  // those of queries and keys
  int64_t window = 0;                 // of sliding_window; 0 = none
  bool window_in_all_layers = false;  // sliding_window counts without use_sliding_window
  int64_t full_attention_period = 0;  // without layer_types; 0: the type has no such layers
};

// Defaults of a type with experts; num == 0 for all others.
struct HuggingFaceExperts {
  std::string_view number_key = "";
  int64_t num = 0, per_token = 0;
  int64_t ffn = 0;                 // of each expert; 0 = intermediate_size
  int64_t shared_ffn = 0;          // of the shared expert; 0 = there is none
  bool always_normalizes = false;  // there is no norm_topk_prob
  // Of types with DeepSeek's keys: groups, dense layers in front, and a number of shared experts,
  // which together are one.
  bool has_deepseek_keys = false;
  int64_t shared = 0, groups = 1, groups_per_token = 1, first_dense = 0;
  double scale = 1;
  bool normalizes = false;
  bool is_sigmoid = false;  // with a correction bias
};

// Widths of latent attention; kv_rank == 0 for types without it.
struct HuggingFaceLatent {
  int64_t q_rank = 0, kv_rank = 0, plain = 0, rotary = 0, value = 0;
};

struct HuggingFaceType {
  std::string_view name;          // model_type
  std::string_view architecture;  // the class, in `architectures`
  HuggingFaceClass model_class;
  HuggingFaceBlocks blocks;
  HuggingFaceKeys keys;
  HuggingFaceSizes sizes;
  HuggingFaceDefaults defaults;
  HuggingFaceExperts experts = {};
  HuggingFaceLatent latent = {};
};

inline constexpr size_t kHuggingFaceTypes = 16;
const std::array<HuggingFaceType, kHuggingFaceTypes>& huggingface_types();  // sorted by name
const HuggingFaceType& type_of(HuggingFaceClass model_class);

// The row of a model_type, "smp" included; nullptr for another word.
const HuggingFaceType* type_named(std::string_view model_type);

// Default of every key of config.json that decides what the model computes, as JSON. Sizes that
// follow from other sizes are left out.
text::OrderedJson defaults_of(const HuggingFaceType& type);

// The limit of gpt_oss's experts: transformers 4 has no other.
inline constexpr double kGptOssLimit = 7;

// The list layer_types of a config.json: every `period`-th layer has full attention, or none with
// period 0.
text::OrderedJson layer_types_of(int64_t layers, int64_t period);

// transformers has several words for one activation (activations.py). Returns "gelu_new" for all
// forms by tanh, "gelu" for the exact form, "silu" for swish, and any other word itself.
std::string_view activation_of(std::string_view word);

}  // namespace smp::huggingface
