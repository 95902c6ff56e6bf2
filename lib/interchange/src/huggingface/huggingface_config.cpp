#include <algorithm>
#include <cmath>
#include <string>

#include "huggingface/huggingface_class.h"
#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/base/check.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/json.h"

// The writer of config.json, in the spelling of transformers 4 and of 5.
namespace smp::huggingface {
namespace {

const char* torch_name_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "float64";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    default: return "float32";
  }
}

const char* gelu_word(GeluKind gelu) {
  switch (gelu) {
    case GeluKind::kTanh: return "gelu_new";
    case GeluKind::kErf: return "gelu";
    case GeluKind::kSigmoid: return "quick_gelu";
  }
  check_failed(__FILE__, __LINE__, "unknown gelu");
}

const char* activation_word(const ModelSpec& model) {
  switch (model.mlp) {
    case MlpKind::kGelu:
    case MlpKind::kGeglu: return gelu_word(model.gelu);
    case MlpKind::kRelu: return "relu";
    case MlpKind::kSwiglu: return "silu";
    case MlpKind::kSquaredRelu: return "relu2";
  }
  check_failed(__FILE__, __LINE__, "unknown mlp");
}

// A factor whose int(head_dim * factor), as transformers computes it, is rotary_dim.
double rotary_factor(const ModelSpec& model) {
  const int64_t dim = rotary_dim_of(model);
  double factor = static_cast<double>(dim) / static_cast<double>(model.head_dim);
  while (static_cast<int64_t>(static_cast<double>(model.head_dim) * factor) < dim) {
    factor = std::nextafter(factor, 2.0);
  }
  return factor;
}

text::OrderedJson rope_of(const ModelSpec& model) {
  const bool plain = model.rope_scaling == RopeScaling::kNone;
  text::OrderedJson rope = {
      {"rope_type", plain ? "default" : std::string(name_of(model.rope_scaling))}};
  if (!plain) rope["factor"] = model.rope_scaling_factor;
  if (model.rope_scaling == RopeScaling::kLlama3) {
    rope["low_freq_factor"] = model.rope_low_freq_factor;
    rope["high_freq_factor"] = model.rope_high_freq_factor;
    rope["original_max_position_embeddings"] = model.rope_original_positions;
  }
  if (model.rope_scaling == RopeScaling::kLongRope) {
    rope["original_max_position_embeddings"] = model.rope_original_positions;
    rope["short_factor"] = model.rope_short_factors;
    rope["long_factor"] = model.rope_long_factors;
    rope["attention_factor"] = model::rope_attention_factor(model);
  }
  if (model.rope_scaling == RopeScaling::kYarn) {
    rope["original_max_position_embeddings"] = model.rope_original_positions;
    rope["beta_fast"] = model.rope_beta_fast;
    rope["beta_slow"] = model.rope_beta_slow;
    if (!model.rope_truncate) rope["truncate"] = false;
    const auto add = [&](const char* key, double value) {
      if (value > 0) rope[key] = value;
    };
    add("attention_factor", model.rope_attention_factor);
    add("mscale", model.rope_mscale);
    add("mscale_all_dim", model.rope_mscale_all_dim);
  }
  return rope;
}

// Adds the rotary positions in the spelling of transformers 4, then of 5.
void add_rope(const ModelSpec& model, text::OrderedJson& config) {
  text::OrderedJson rope = rope_of(model);
  config["rope_theta"] = model.rope_theta;
  if (model.rope_scaling != RopeScaling::kNone) config["rope_scaling"] = rope;
  if (model.rope_scaling == RopeScaling::kLongRope) {  // where transformers 4 reads it
    config["original_max_position_embeddings"] = model.rope_original_positions;
  }
  rope["rope_theta"] = model.rope_theta;
  if (model.kv_lora_rank == 0 && rotary_dim_of(model) != model.head_dim) {
    config["partial_rotary_factor"] = rope["partial_rotary_factor"] = rotary_factor(model);
  }
  config["rope_parameters"] = rope;
}

void add_own_keys(const ModelSpec& model, text::OrderedJson& config) {
  config["mlp"] = name_of(model.mlp);
  config["gelu"] = name_of(model.gelu);
  config["norm"] = name_of(model.norm);
  config["norm_epsilon"] = model.norm_epsilon;
  config["position_embedding"] = name_of(model.position_embedding);
  config["qkv_bias"] = model.qkv_bias;
  config["attention_output_bias"] = model.attention_output_bias;
  config["mlp_bias"] = model.mlp_bias;
  config["head_bias"] = model.head_bias;
  config["qk_norm"] = model.qk_norm;
  config["qk_norm_over"] = name_of(model.qk_norm_over);
  config["attention_sinks"] = model.attention_sinks;
  config["glu_limit"] = model.glu_limit;
  config["glu_offset"] = model.glu_offset;
  config["parallel_residual"] = model.parallel_residual;
  config["shared_norm"] = model.shared_norm;
  config["sliding_window"] = model.sliding_window;
  config["full_attention_period"] = model.full_attention_period;
  if (model.num_experts == 0) return;
  config["num_experts"] = model.num_experts;
  config["experts_per_token"] = model.experts_per_token;
  config["router"] = name_of(model.router);
  config["normalize_expert_weights"] = model.normalize_expert_weights;
  config["routed_scaling_factor"] = model.routed_scaling_factor;
  config["router_bias"] = model.router_bias;
  config["router_correction_bias"] = model.router_correction_bias;
  config["expert_capacity_factor"] = model.expert_capacity_factor;
  config["expert_groups"] = model.expert_groups;
  config["expert_groups_per_token"] = model.expert_groups_per_token;
  config["expert_ffn_hidden_size"] = model.expert_ffn_hidden_size;
  config["shared_expert_ffn_hidden_size"] = model.shared_expert_ffn_hidden_size;
  config["shared_expert_gate"] = model.shared_expert_gate;
  config["first_dense_layers"] = model.first_dense_layers;
  config["moe_layer_period"] = model.moe_layer_period;
}

const char* t5_activation_word(const ModelSpec& model) {
  if (model.mlp == MlpKind::kRelu) return "relu";
  return model.mlp == MlpKind::kGeglu ? "gated-gelu" : "gated-silu";
}

void add_t5(const ModelSpec& model, text::OrderedJson& config) {
  config["is_encoder_decoder"] = true;
  config["num_decoder_layers"] = model.decoder_layers;
  config["relative_attention_num_buckets"] = model::kRelativeBuckets;
  config["relative_attention_max_distance"] = model::kRelativeDistance;
  config["decoder_start_token_id"] = 0;
  config["pad_token_id"] = 0;
}

// Sizes of experts, how a token's are weighed, and which layers have them.
void add_experts(const HuggingFaceType& type, const ModelSpec& model, text::OrderedJson& config) {
  const HuggingFaceExperts& experts = type.experts;
  if (experts.num == 0) return;
  config[std::string(experts.number_key)] = model.num_experts;
  config["num_experts_per_tok"] = model.experts_per_token;
  if (!experts.always_normalizes) config["norm_topk_prob"] = model.normalize_expert_weights;
  if (experts.ffn == 0) {
    config[std::string(type.keys.ffn)] = model.expert_ffn_hidden_size;
    return;
  }
  config["moe_intermediate_size"] = model.expert_ffn_hidden_size;
  if (experts.has_deepseek_keys) {
    config["n_shared_experts"] =
        model.shared_expert_ffn_hidden_size / std::max<int64_t>(1, model.expert_ffn_hidden_size);
    config["routed_scaling_factor"] = model.routed_scaling_factor;
    config["n_group"] = model.expert_groups;
    config["topk_group"] = model.expert_groups_per_token;
    config["first_k_dense_replace"] = model.first_dense_layers;
    if (model.num_mtp_layers > 0) config["num_nextn_predict_layers"] = model.num_mtp_layers;
    if (!experts.is_sigmoid) {
      config["topk_method"] = model.expert_groups > 1 ? "group_limited_greedy" : "greedy";
    }
    return;
  }
  if (experts.shared_ffn > 0) {
    config["shared_expert_intermediate_size"] = model.shared_expert_ffn_hidden_size;
  }
  const bool by_period = model.moe_layer_period > 1;
  config["decoder_sparse_step"] = model.moe_layer_period;
  text::OrderedJson dense = text::OrderedJson::array();
  for (int64_t i = 0; !by_period && i < model.first_dense_layers; ++i) dense.push_back(i);
  config["mlp_only_layers"] = dense;
}

void add_latent(const HuggingFaceType& type, const ModelSpec& model, text::OrderedJson& config) {
  if (type.latent.kv_rank == 0) return;
  config["q_lora_rank"] =
      model.q_lora_rank > 0 ? text::OrderedJson(model.q_lora_rank) : text::OrderedJson();
  config["kv_lora_rank"] = model.kv_lora_rank;
  config["qk_nope_head_dim"] = model.qk_head_dim;
  config["qk_rope_head_dim"] = model.qk_rope_head_dim;
  config["v_head_dim"] = model.v_head_dim;
  config["rope_interleave"] = true;
}

void add_sizes(const HuggingFaceType& type, const ModelSpec& model, text::OrderedJson& config) {
  const auto add = [&](std::string_view key, int64_t value) {
    if (!key.empty()) config[std::string(key)] = value;
  };
  add("vocab_size", model.vocab_size);
  add_experts(type, model, config);
  add_latent(type, model, config);
  if (type.blocks != HuggingFaceBlocks::kT5) add(type.keys.positions, model.max_positions);
  add(type.keys.hidden, model.hidden_size);
  if (!config.contains(type.keys.ffn)) add(type.keys.ffn, model.ffn_hidden_size);
  add(type.keys.layers, model.num_layers);
  add(type.keys.heads, model.num_heads);
  add(type.keys.kv_heads, model.num_kv_heads);
  add(type.keys.head_dim, model.head_dim);
}

void add_attributes(const HuggingFaceType& type, const ModelSpec& model,
                    text::OrderedJson& config) {
  const auto add = [&](std::string_view key, const auto& value) {
    if (!key.empty()) config[std::string(key)] = value;
  };
  const bool is_t5 = type.blocks == HuggingFaceBlocks::kT5;
  const bool is_gpt_oss =
      type.model_class == HuggingFaceClass::kGptOss;  // whose word has no effect
  add(type.keys.activation, is_t5        ? t5_activation_word(model)
                            : is_gpt_oss ? type.defaults.activation.data()
                                         : activation_word(model));
  add(type.keys.epsilon, model.norm_epsilon);
  add(type.keys.hidden_dropout, model.hidden_dropout);
  add(type.keys.qkv_bias, model.qkv_bias);
  add(type.keys.mlp_bias, model.mlp_bias);
  if (type.model_class == HuggingFaceClass::kGlm4Moe) add(type.keys.qk_norm, model.qk_norm);
  if (type.model_class == HuggingFaceClass::kGpt2) {
    add("embd_pdrop", model.hidden_dropout);
    add(type.keys.attention_dropout, model.attention_dropout);
  }
  // Phi turns a part of each head unless its config says otherwise.
  if (type.defaults.rotary_share != 1 && rotary_dim_of(model) == model.head_dim) {
    add(type.keys.rotary_share, 1.0);
  }
  switch (type.model_class) {
    case HuggingFaceClass::kGptOss:
      add("swiglu_limit", model.glu_limit);
      add("swiglu_alpha", 1.702);
      add("sliding_window", model.sliding_window);
      add("layer_types", layer_types_of(model.num_layers, model.full_attention_period));
      break;
    case HuggingFaceClass::kOlmoe: add("clip_qkv", nullptr); break;
    case HuggingFaceClass::kMistral: add("sliding_window", model.sliding_window); break;
    case HuggingFaceClass::kMixtral:
      if (model.sliding_window > 0) add("sliding_window", model.sliding_window);
      break;
    case HuggingFaceClass::kQwen2:
    case HuggingFaceClass::kQwen2Moe:
    case HuggingFaceClass::kQwen3:
    case HuggingFaceClass::kQwen3Moe: add("use_sliding_window", false); break;
    default: break;
  }
}

}  // namespace

std::string huggingface_config(const ModelSpec& model, DType dtype) {
  text::OrderedJson config;
  if (model::is_list(model)) {
    config["model_type"] = "smp";
    config["layers"] = jobfile::layer_list_text(model.operators);
    config["input"] = {model.input_channels, model.input_height, model.input_width};
    config["loss"] = model.loss;
    config["dtype"] = torch_name_of(dtype);
    return config.dump(2) + "\n";
  }
  const HuggingFaceType& type = type_of(class_of(model));
  config["architectures"] = {std::string(type.architecture)};
  config["model_type"] = type.name;
  add_sizes(type, model, config);
  if (type.model_class == HuggingFaceClass::kNone) {
    add_own_keys(model, config);
  } else {
    add_attributes(type, model, config);
  }
  if (type.blocks == HuggingFaceBlocks::kT5) {
    add_t5(model, config);
  } else if (type.blocks != HuggingFaceBlocks::kGpt2) {
    add_rope(model, config);
  }
  config["initializer_range"] = model.initializer_range;
  config["tie_word_embeddings"] = model.tied_embeddings;
  // Bytes have no begin or end of text, and the defaults would lie outside a small vocabulary.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  const char* stored = torch_name_of(dtype);
  config["torch_dtype"] = stored;  // transformers 4
  config["dtype"] = stored;        // transformers 5
  return config.dump(2) + "\n";
}

}  // namespace smp::huggingface
