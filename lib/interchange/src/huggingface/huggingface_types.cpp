#include "huggingface/huggingface_types.h"

#include <algorithm>
#include <string>

#include "smp/plan/model/parameter_counts.h"

namespace smp::huggingface {
namespace {

using Class = HuggingFaceClass;
using Blocks = HuggingFaceBlocks;
using Keys = HuggingFaceKeys;

// head_dim is another width there, that of what rotates.
constexpr Keys kDeepseekKeys = {.head_dim = ""};
constexpr HuggingFaceLatent kDeepseekLatent = {1536, 512, 128, 64, 128};
constexpr Keys kGlm4MoeKeys = {.qkv_bias = "attention_bias", .qk_norm = "use_qk_norm"};
constexpr Keys kGpt2Keys = {.hidden = "n_embd",
                            .layers = "n_layer",
                            .heads = "n_head",
                            .kv_heads = "",
                            .head_dim = "",
                            .ffn = "n_inner",
                            .positions = "n_positions",
                            .epsilon = "layer_norm_epsilon",
                            .activation = "activation_function",
                            .attention_dropout = "attn_pdrop",
                            .hidden_dropout = "resid_pdrop"};
constexpr Keys kGptNeoXKeys = {.kv_heads = "",
                               .head_dim = "",
                               .epsilon = "layer_norm_eps",
                               .rope_theta = "rotary_emb_base",
                               .rotary_share = "rotary_pct",
                               .hidden_dropout = "hidden_dropout",
                               .qkv_bias = "attention_bias",
                               .output_bias = "attention_bias",
                               .parallel_residual = "use_parallel_residual"};
constexpr Keys kGptOssKeys = {.qkv_bias = "attention_bias", .output_bias = "attention_bias"};
constexpr Keys kLlamaKeys = {
    .qkv_bias = "attention_bias", .output_bias = "attention_bias", .mlp_bias = "mlp_bias"};
constexpr Keys kOlmoeKeys = {
    .head_dim = "", .qkv_bias = "attention_bias", .output_bias = "attention_bias"};
constexpr Keys kPhiKeys = {
    .epsilon = "layer_norm_eps", .hidden_dropout = "resid_pdrop", .qk_norm = "qk_layernorm"};
constexpr Keys kQwen2MoeKeys = {.qkv_bias = "qkv_bias"};
constexpr Keys kQwen3Keys = {.qkv_bias = "attention_bias", .output_bias = "attention_bias"};
constexpr Keys kT5Keys = {.hidden = "d_model",
                          .layers = "num_layers",
                          .heads = "num_heads",
                          .kv_heads = "",
                          .head_dim = "d_kv",
                          .ffn = "d_ff",
                          .positions = "n_positions",
                          .epsilon = "layer_norm_epsilon",
                          .activation = "feed_forward_proj",
                          .attention_dropout = "dropout_rate",
                          .hidden_dropout = "dropout_rate"};

constexpr HuggingFaceDefaults kGpt2Defaults = {.epsilon = 1e-5,
                                               .activation = "gelu_new",
                                               .tied = true,
                                               .dropout = 0.1,
                                               .qkv_bias = true,
                                               .output_bias = true,
                                               .mlp_bias = true};
constexpr HuggingFaceDefaults kGptNeoXDefaults = {.epsilon = 1e-5,
                                                  .activation = "gelu",
                                                  .rotary_share = 0.25,
                                                  .qkv_bias = true,
                                                  .output_bias = true,
                                                  .mlp_bias = true,
                                                  .parallel_residual = true};
constexpr HuggingFaceDefaults kGptOssDefaults = {.epsilon = 1e-5,
                                                 .rope_theta = 150000,
                                                 .qkv_bias = true,
                                                 .output_bias = true,
                                                 .mlp_bias = true,
                                                 .window = 128,
                                                 .window_in_all_layers = true,
                                                 .full_attention_period = 2};
constexpr HuggingFaceDefaults kPhiDefaults = {.epsilon = 1e-5,
                                              .activation = "gelu_new",
                                              .rotary_share = 0.5,
                                              .qkv_bias = true,
                                              .output_bias = true,
                                              .mlp_bias = true,
                                              .parallel_residual = true};

constexpr HuggingFaceSizes kLlamaSizes = {4096, 32, 32, 0, 0, 11008, 32000, 2048};

// model_type, class, blocks, keys;
// sizes: hidden, layers, heads, KV heads, head_dim, ffn, vocab, positions; attributes; experts
constexpr std::array<HuggingFaceType, kHuggingFaceTypes> kTypes = {{
    {"deepseek_v2",
     "DeepseekV2ForCausalLM",
     Class::kDeepseekV2,
     Blocks::kLlama,
     kDeepseekKeys,
     {4096, 32, 32, 0, 0, 11008, 32000, 2048},
     {},
     {.number_key = "n_routed_experts",
      .num = 64,
      .per_token = 0,
      .ffn = 1407,
      .has_deepseek_keys = true,
      .shared = 2},
     kDeepseekLatent},
    {"deepseek_v3",
     "DeepseekV3ForCausalLM",
     Class::kDeepseekV3,
     Blocks::kLlama,
     kDeepseekKeys,
     {7168, 61, 128, 128, 0, 18432, 129280, 4096},
     {},
     {.number_key = "n_routed_experts",
      .num = 256,
      .per_token = 8,
      .ffn = 2048,
      .has_deepseek_keys = true,
      .shared = 1,
      .groups = 8,
      .groups_per_token = 4,
      .first_dense = 3,
      .scale = 2.5,
      .normalizes = true,
      .is_sigmoid = true},
     kDeepseekLatent},
    {"glm4_moe",
     "Glm4MoeForCausalLM",
     Class::kGlm4Moe,
     Blocks::kLlama,
     kGlm4MoeKeys,
     {4096, 46, 96, 8, 0, 10944, 151552, 131072},
     {.epsilon = 1e-5, .rotary_share = 0.5},
     {.number_key = "n_routed_experts",
      .num = 128,
      .per_token = 8,
      .ffn = 1408,
      .has_deepseek_keys = true,
      .shared = 1,
      .first_dense = 1,
      .normalizes = true,
      .is_sigmoid = true}},
    {"gpt2",
     "GPT2LMHeadModel",
     Class::kGpt2,
     Blocks::kGpt2,
     kGpt2Keys,
     {768, 12, 12, 0, 0, 0, 50257, 1024},
     kGpt2Defaults},
    {"gpt_neox",
     "GPTNeoXForCausalLM",
     Class::kGptNeoX,
     Blocks::kNeoX,
     kGptNeoXKeys,
     {6144, 44, 64, 0, 0, 24576, 50432, 2048},
     kGptNeoXDefaults},
    {"gpt_oss",
     "GptOssForCausalLM",
     Class::kGptOss,
     Blocks::kLlama,
     kGptOssKeys,
     {2880, 36, 64, 8, 64, 2880, 201088, 131072},
     kGptOssDefaults,
     {.number_key = "num_local_experts", .num = 128, .per_token = 4, .always_normalizes = true}},
    {"llama", "LlamaForCausalLM", Class::kLlama, Blocks::kLlama, kLlamaKeys, kLlamaSizes, {}},
    {"mistral",
     "MistralForCausalLM",
     Class::kMistral,
     Blocks::kLlama,
     {},
     {4096, 32, 32, 8, 0, 14336, 32000, 131072},
     {.window = 4096, .window_in_all_layers = true}},
    {"mixtral",
     "MixtralForCausalLM",
     Class::kMixtral,
     Blocks::kLlama,
     {},
     {4096, 32, 32, 8, 0, 14336, 32000, 131072},
     {.epsilon = 1e-5, .rope_theta = 1e6, .window_in_all_layers = true},
     {.number_key = "num_local_experts", .num = 8, .per_token = 2, .always_normalizes = true}},
    {"olmoe",
     "OlmoeForCausalLM",
     Class::kOlmoe,
     Blocks::kLlama,
     kOlmoeKeys,
     {2048, 16, 16, 0, 0, 2048, 50304, 4096},
     {.epsilon = 1e-5, .qk_norm = true, .norms_over_all_heads = true},
     {.number_key = "num_experts", .num = 64, .per_token = 8}},
    {"phi",
     "PhiForCausalLM",
     Class::kPhi,
     Blocks::kPhi,
     kPhiKeys,
     {2048, 24, 32, 0, 0, 8192, 51200, 2048},
     kPhiDefaults},
    {"qwen2",
     "Qwen2ForCausalLM",
     Class::kQwen2,
     Blocks::kLlama,
     {},
     {4096, 32, 32, 32, 0, 22016, 151936, 32768},
     {.qkv_bias = true}},
    {"qwen2_moe",
     "Qwen2MoeForCausalLM",
     Class::kQwen2Moe,
     Blocks::kLlama,
     kQwen2MoeKeys,
     {2048, 24, 16, 16, 0, 5632, 151936, 32768},
     {.qkv_bias = true},
     {.number_key = "num_experts", .num = 60, .per_token = 4, .ffn = 1408, .shared_ffn = 5632}},
    {"qwen3",
     "Qwen3ForCausalLM",
     Class::kQwen3,
     Blocks::kLlama,
     kQwen3Keys,
     {4096, 32, 32, 32, 128, 22016, 151936, 32768},
     {.qk_norm = true}},
    {"qwen3_moe",
     "Qwen3MoeForCausalLM",
     Class::kQwen3Moe,
     Blocks::kLlama,
     kQwen3Keys,
     {2048, 24, 32, 4, 0, 6144, 151936, 32768},
     {.qk_norm = true},
     {.number_key = "num_experts", .num = 128, .per_token = 8, .ffn = 768}},
    {"t5",
     "T5ForConditionalGeneration",
     Class::kT5,
     Blocks::kT5,
     kT5Keys,
     {512, 6, 8, 0, 64, 2048, 32128, 0},
     {.activation = "relu", .tied = true, .dropout = 0.1}},
}};

// A model that no class of transformers computes has Llama's keys, and our own beside them.
constexpr HuggingFaceType kOwn = {"smp",
                                  "SmpForCausalLM",
                                  Class::kNone,
                                  Blocks::kLlama,
                                  {},
                                  kLlamaSizes,
                                  {.window_in_all_layers = true}};

}  // namespace

const std::array<HuggingFaceType, kHuggingFaceTypes>& huggingface_types() { return kTypes; }

const HuggingFaceType& type_of(HuggingFaceClass model_class) {
  return model_class == Class::kNone ? kOwn : kTypes.at(static_cast<size_t>(model_class));
}

const HuggingFaceType* type_named(std::string_view model_type) {
  if (model_type == kOwn.name) return &kOwn;
  const auto found = std::ranges::find(kTypes, model_type, &HuggingFaceType::name);
  return found == kTypes.end() ? nullptr : &*found;
}

namespace {

void add_experts(const HuggingFaceExperts& experts, text::OrderedJson& out) {
  if (experts.num == 0) return;
  out[std::string(experts.number_key)] = experts.num;
  out["num_experts_per_tok"] = experts.per_token;
  if (!experts.always_normalizes) out["norm_topk_prob"] = experts.normalizes;
  if (experts.ffn == 0) return;
  out["moe_intermediate_size"] = experts.ffn;
  if (experts.has_deepseek_keys) {
    out["n_shared_experts"] = experts.shared;
    out["routed_scaling_factor"] = experts.scale;
    out["n_group"] = experts.groups;
    out["topk_group"] = experts.groups_per_token;
    out["first_k_dense_replace"] = experts.first_dense;
    out["topk_method"] = "greedy";
    return;
  }
  out["decoder_sparse_step"] = 1;
  out["mlp_only_layers"] = text::OrderedJson::array();
  if (experts.shared_ffn > 0) out["shared_expert_intermediate_size"] = experts.shared_ffn;
}

void add_latent(const HuggingFaceLatent& latent, text::OrderedJson& out) {
  if (latent.kv_rank == 0) return;
  out["q_lora_rank"] = latent.q_rank;
  out["kv_lora_rank"] = latent.kv_rank;
  out["qk_nope_head_dim"] = latent.plain;
  out["qk_rope_head_dim"] = latent.rotary;
  out["v_head_dim"] = latent.value;
  out["rope_interleave"] = true;
}

}  // namespace

text::OrderedJson defaults_of(const HuggingFaceType& type) {
  const HuggingFaceKeys& keys = type.keys;
  const HuggingFaceSizes& sizes = type.sizes;
  const HuggingFaceDefaults& values = type.defaults;
  text::OrderedJson out = text::OrderedJson::object();
  const auto add = [&](std::string_view key, const auto& value) {
    if (!key.empty()) out[std::string(key)] = value;
  };
  const auto add_size = [&](std::string_view key, int64_t value) {
    if (value > 0) add(key, value);
  };
  add_size(keys.hidden, sizes.hidden);
  add_size(keys.layers, sizes.layers);
  add_size(keys.heads, sizes.heads);
  add_size(keys.kv_heads, sizes.kv_heads);
  add_size(keys.head_dim, sizes.head_dim);
  add_size(keys.ffn, sizes.ffn);
  add_size("vocab_size", sizes.vocab);
  add_size(keys.positions, sizes.positions);
  add(keys.epsilon, values.epsilon);
  add(keys.activation, values.activation);
  add("tie_word_embeddings", values.tied);
  // Mistral has no such keys: its class computes what Llama's does with these values.
  add("attention_bias", values.output_bias);
  if (type.model_class == Class::kOlmoe) add("clip_qkv", nullptr);
  if (type.model_class == Class::kGptOss) {
    add("swiglu_limit", kGptOssLimit);
    add("swiglu_alpha", 1.702);
  }
  add("mlp_bias", values.mlp_bias);
  add(keys.qk_norm, values.qk_norm);
  if (&type == &kOwn) {  // keys that older files of ours do not have
    add("router_correction_bias", false);
    add("router_bias", false);
    add("qk_norm_over", "head");
    add("attention_sinks", false);
    add("glu_limit", 0.0);
    add("glu_offset", 0.0);
    add("full_attention_period", 0);
    add("expert_capacity_factor", 0.0);
  }
  add_experts(type.experts, out);
  add_latent(type.latent, out);
  if (type.blocks != Blocks::kT5) return out;
  add("relative_attention_num_buckets", model::kRelativeBuckets);
  add("relative_attention_max_distance", model::kRelativeDistance);
  add("is_encoder_decoder", true);
  add("decoder_start_token_id", 0);
  return out;
}

text::OrderedJson layer_types_of(int64_t layers, int64_t period) {
  text::OrderedJson types = text::OrderedJson::array();
  for (int64_t i = 1; i <= layers; ++i) {
    types.push_back(period > 0 && i % period == 0 ? "full_attention" : "sliding_attention");
  }
  return types;
}

std::string_view activation_of(std::string_view word) {
  for (const std::string_view by_tanh :
       {"gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "gelu_python_tanh"}) {
    if (word == by_tanh) return "gelu_new";
  }
  if (word == "gelu_python") return "gelu";
  return word == "swish" ? "silu" : word;
}

}  // namespace smp::huggingface
