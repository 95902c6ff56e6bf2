#include <cmath>

#include "huggingface_twin.h"
#include "smp/plan/check.h"
#include "smp/plan/job_format.h"
#include "smp/plan/job_names.h"
#include "smp/plan/json.h"
#include "smp/plan/operators.h"
#include "smp/plan/parameter_counts.h"
#include "smp/runtime/huggingface_model.h"

// Keys of config.json: transformers/models/{gpt2,llama,mistral,phi,qwen2,qwen3,t5}/
// configuration_*.py, in the spelling of transformers 4 and of 5.
namespace smp {
namespace {

const char* torch_name_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "float64";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    default: return "float32";
  }
}

const char* activation_word(const ModelSpec& model) {
  switch (model.mlp) {
    case MlpKind::kGelu:
    case MlpKind::kGeglu: return model.gelu == GeluKind::kErf ? "gelu" : "gelu_new";
    case MlpKind::kRelu: return "relu";
    case MlpKind::kSwiglu: return "silu";
  }
  check_failed(__FILE__, __LINE__, "unknown mlp");
}

// int(head_dim * factor), which they compute, must be what is turned.
double rotary_factor(const ModelSpec& model) {
  const int64_t dim = rotary_dim_of(model);
  double factor = static_cast<double>(dim) / static_cast<double>(model.head_dim);
  while (static_cast<int64_t>(static_cast<double>(model.head_dim) * factor) < dim) {
    factor = std::nextafter(factor, 2.0);
  }
  return factor;
}

OrderedJson rope_of(const ModelSpec& model) {
  const bool plain = model.rope_scaling == RopeScaling::kNone;
  OrderedJson rope = {{"rope_type", plain ? "default" : std::string(name_of(model.rope_scaling))}};
  if (!plain) rope["factor"] = model.rope_scaling_factor;
  if (model.rope_scaling == RopeScaling::kLlama3) {
    rope["low_freq_factor"] = model.rope_low_freq_factor;
    rope["high_freq_factor"] = model.rope_high_freq_factor;
    rope["original_max_position_embeddings"] = model.rope_original_positions;
  }
  return rope;
}

// In the spelling of transformers 4, then of 5.
void add_rope(const ModelSpec& model, OrderedJson& config) {
  OrderedJson rope = rope_of(model);
  config["rope_theta"] = model.rope_theta;
  if (model.rope_scaling != RopeScaling::kNone) config["rope_scaling"] = rope;
  rope["rope_theta"] = model.rope_theta;
  if (rotary_dim_of(model) != model.head_dim) {
    config["partial_rotary_factor"] = rope["partial_rotary_factor"] = rotary_factor(model);
  }
  config["rope_parameters"] = rope;
}

void add_own_keys(const ModelSpec& model, OrderedJson& config) {
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
  config["parallel_residual"] = model.parallel_residual;
  config["shared_norm"] = model.shared_norm;
  config["sliding_window"] = model.sliding_window;
}

void add_keys_of(Twin twin, const ModelSpec& model, OrderedJson& config) {
  config["hidden_act"] = activation_word(model);
  if (twin == Twin::kPhi) {
    config["layer_norm_eps"] = model.norm_epsilon;
    config["resid_pdrop"] = model.hidden_dropout;
    if (rotary_dim_of(model) == model.head_dim) config["partial_rotary_factor"] = 1.0;
    return;
  }
  config["rms_norm_eps"] = model.norm_epsilon;
  if (twin == Twin::kLlama || twin == Twin::kQwen3) config["attention_bias"] = model.qkv_bias;
  if (twin == Twin::kLlama) config["mlp_bias"] = model.mlp_bias;
  if (twin == Twin::kMistral) config["sliding_window"] = model.sliding_window;
  if (twin == Twin::kQwen2 || twin == Twin::kQwen3) config["use_sliding_window"] = false;
}

}  // namespace

std::string huggingface_config(const ModelSpec& model, DType dtype) {
  OrderedJson config;
  if (is_list(model)) {
    config["model_type"] = "smp";
    config["layers"] = layer_list_text(model.operators);
    config["input"] = {model.input_channels, model.input_height, model.input_width};
    config["loss"] = model.loss;
    config["dtype"] = torch_name_of(dtype);
    return config.dump(2) + "\n";
  }
  const Twin twin = twin_of(model);
  config["architectures"] = {names_of(twin).architecture};
  config["model_type"] = names_of(twin).model_type;
  config["vocab_size"] = model.vocab_size;
  if (twin == Twin::kGpt2) {
    config["n_positions"] = model.max_positions;
    config["n_embd"] = model.hidden_size;
    config["n_layer"] = model.num_layers;
    config["n_head"] = model.num_heads;
    config["n_inner"] = model.ffn_hidden_size;
    config["activation_function"] = activation_word(model);
    config["layer_norm_epsilon"] = model.norm_epsilon;
    config["resid_pdrop"] = model.hidden_dropout;
    config["embd_pdrop"] = model.hidden_dropout;
    config["attn_pdrop"] = model.attention_dropout;
  } else if (twin == Twin::kT5) {
    config["is_encoder_decoder"] = true;
    config["d_model"] = model.hidden_size;
    config["d_ff"] = model.ffn_hidden_size;
    config["d_kv"] = model.head_dim;
    config["num_heads"] = model.num_heads;
    config["num_layers"] = model.num_layers;
    config["num_decoder_layers"] = model.decoder_layers;
    config["feed_forward_proj"] = model.mlp == MlpKind::kRelu    ? "relu"
                                  : model.mlp == MlpKind::kGeglu ? "gated-gelu"
                                                                 : "gated-silu";
    config["layer_norm_epsilon"] = model.norm_epsilon;
    config["relative_attention_num_buckets"] = kRelativeBuckets;
    config["relative_attention_max_distance"] = kRelativeDistance;
    config["decoder_start_token_id"] = 0;
    config["pad_token_id"] = 0;
    config["dropout_rate"] = model.hidden_dropout;
  } else {
    config["hidden_size"] = model.hidden_size;
    config["intermediate_size"] = model.ffn_hidden_size;
    config["num_hidden_layers"] = model.num_layers;
    config["num_attention_heads"] = model.num_heads;
    config["num_key_value_heads"] = model.num_kv_heads;
    config["head_dim"] = model.head_dim;
    config["max_position_embeddings"] = model.max_positions;
    if (twin == Twin::kNone) {
      add_own_keys(model, config);
    } else {
      add_keys_of(twin, model, config);
    }
    add_rope(model, config);
  }
  config["initializer_range"] = model.initializer_range;
  config["tie_word_embeddings"] = model.tied_embeddings;
  // Bytes have no begin or end of text; the defaults would lie outside a small vocabulary.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  const char* type = torch_name_of(dtype);
  config["torch_dtype"] = type;  // transformers 4
  config["dtype"] = type;        // transformers 5
  return config.dump(2) + "\n";
}

}  // namespace smp
