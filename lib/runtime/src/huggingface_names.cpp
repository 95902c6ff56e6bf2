#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "smp/plan/check.h"
#include "smp/plan/job_names.h"
#include "smp/plan/model_family.h"
#include "smp/plan/operators.h"
#include "smp/plan/parameter_counts.h"
#include "smp/runtime/huggingface_export.h"

// Names and shapes: transformers/models/{gpt2,llama,mistral,phi,qwen2,qwen3,t5}/modeling_*.py; keys
// of config.json: their configuration_*.py, in the spelling of transformers 4 and of 5.
namespace smp {
namespace {

// The class of transformers that computes what the model does.
enum class Twin { kGpt2, kLlama, kMistral, kQwen2, kQwen3, kPhi, kT5, kNone };

// Of models whose blocks are Llama's but for biases, norms of heads and the gate's activation.
Twin llama_twin_of(const ModelSpec& model) {
  const bool all_biases = model.qkv_bias == model.attention_output_bias;
  const bool windowed = model.sliding_window > 0;
  if (model.qk_norm) return all_biases && !model.mlp_bias && !windowed ? Twin::kQwen3 : Twin::kNone;
  if (!all_biases) {
    return model.qkv_bias && !model.mlp_bias && !windowed ? Twin::kQwen2 : Twin::kNone;
  }
  if (!windowed) return Twin::kLlama;
  return model.qkv_bias || model.mlp_bias ? Twin::kNone : Twin::kMistral;
}

bool has_blocks_of_phi(const ModelSpec& model) {
  return model.norm == NormKind::kLayerNorm && model.qkv_bias && model.attention_output_bias &&
         model.mlp_bias && model.head_bias && !model.qk_norm && model.parallel_residual &&
         model.shared_norm && !model.tied_embeddings && is_dense_decoder(model);
}

// Its dense MLP is ReLU, or gated by GELU (in its tanh form) or SiLU.
bool is_t5(const ModelSpec& model) {
  return is_dense_encoder_decoder(model) && model.norm == NormKind::kRmsNorm &&
         model.mlp != MlpKind::kGelu && model.num_kv_heads == model.num_heads && !model.qkv_bias &&
         !model.attention_output_bias && !model.mlp_bias && !model.head_bias && !model.qk_norm;
}

Twin twin_of(const ModelSpec& model) {
  if (is_t5(model)) return Twin::kT5;
  const bool rotary = model.position_embedding == PositionKind::kRotary;
  if (!is_gated(model.mlp)) {
    ModelSpec gelu = model;
    gelu.mlp = MlpKind::kGelu;  // both classes take another activation
    if (model.sliding_window > 0) return Twin::kNone;
    if (has_blocks_of(gelu, ModelFamily::kGpt2)) return Twin::kGpt2;
    return rotary && has_blocks_of_phi(model) ? Twin::kPhi : Twin::kNone;
  }
  ModelSpec plain = model;
  plain.mlp = MlpKind::kSwiglu;
  plain.qkv_bias = plain.attention_output_bias = plain.mlp_bias = plain.qk_norm = false;
  const bool turns_whole_heads = rotary && rotary_dim_of(model) == model.head_dim;
  return turns_whole_heads && has_blocks_of(plain, ModelFamily::kLlama) ? llama_twin_of(model)
                                                                        : Twin::kNone;
}

// Ours -> theirs, within one layer.
struct Name {
  std::vector<const char*> sources;
  std::string target;
  bool transposed = false;
};

const std::vector<Name>& gpt2_block_names() {
  static const std::vector<Name> names = {
      {{"attention_norm.weight"}, "ln_1.weight"},
      {{"attention_norm.bias"}, "ln_1.bias"},
      {{"attention.q.weight", "attention.k.weight", "attention.v.weight"},
       "attn.c_attn.weight",
       true},
      {{"attention.q.bias", "attention.k.bias", "attention.v.bias"}, "attn.c_attn.bias"},
      {{"attention.output.weight"}, "attn.c_proj.weight", true},
      {{"attention.output.bias"}, "attn.c_proj.bias"},
      {{"mlp_norm.weight"}, "ln_2.weight"},
      {{"mlp_norm.bias"}, "ln_2.bias"},
      {{"mlp.up.weight"}, "mlp.c_fc.weight", true},
      {{"mlp.up.bias"}, "mlp.c_fc.bias"},
      {{"mlp.down.weight"}, "mlp.c_proj.weight", true},
      {{"mlp.down.bias"}, "mlp.c_proj.bias"},
  };
  return names;
}

std::vector<Name> llama_block_names(const ModelSpec& model) {
  std::vector<Name> names = {
      {{"attention_norm.weight"}, "input_layernorm.weight"},
      {{"attention.q.weight"}, "self_attn.q_proj.weight"},
      {{"attention.k.weight"}, "self_attn.k_proj.weight"},
      {{"attention.v.weight"}, "self_attn.v_proj.weight"},
      {{"attention.output.weight"}, "self_attn.o_proj.weight"},
      {{"mlp_norm.weight"}, "post_attention_layernorm.weight"},
      {{"mlp.gate.weight"}, "mlp.gate_proj.weight"},
      {{"mlp.up.weight"}, "mlp.up_proj.weight"},
      {{"mlp.down.weight"}, "mlp.down_proj.weight"},
  };
  if (model.qkv_bias) {
    names.push_back({{"attention.q.bias"}, "self_attn.q_proj.bias"});
    names.push_back({{"attention.k.bias"}, "self_attn.k_proj.bias"});
    names.push_back({{"attention.v.bias"}, "self_attn.v_proj.bias"});
  }
  if (model.attention_output_bias) {
    names.push_back({{"attention.output.bias"}, "self_attn.o_proj.bias"});
  }
  if (model.mlp_bias) {
    names.push_back({{"mlp.gate.bias"}, "mlp.gate_proj.bias"});
    names.push_back({{"mlp.up.bias"}, "mlp.up_proj.bias"});
    names.push_back({{"mlp.down.bias"}, "mlp.down_proj.bias"});
  }
  if (model.qk_norm) {
    names.push_back({{"attention.q_norm.weight"}, "self_attn.q_norm.weight"});
    names.push_back({{"attention.k_norm.weight"}, "self_attn.k_norm.weight"});
  }
  return names;
}

const std::vector<Name>& phi_block_names() {
  static const std::vector<Name> names = {
      {{"attention_norm.weight"}, "input_layernorm.weight"},
      {{"attention_norm.bias"}, "input_layernorm.bias"},
      {{"attention.q.weight"}, "self_attn.q_proj.weight"},
      {{"attention.k.weight"}, "self_attn.k_proj.weight"},
      {{"attention.v.weight"}, "self_attn.v_proj.weight"},
      {{"attention.q.bias"}, "self_attn.q_proj.bias"},
      {{"attention.k.bias"}, "self_attn.k_proj.bias"},
      {{"attention.v.bias"}, "self_attn.v_proj.bias"},
      {{"attention.output.weight"}, "self_attn.dense.weight"},
      {{"attention.output.bias"}, "self_attn.dense.bias"},
      {{"mlp.up.weight"}, "mlp.fc1.weight"},
      {{"mlp.up.bias"}, "mlp.fc1.bias"},
      {{"mlp.down.weight"}, "mlp.fc2.weight"},
      {{"mlp.down.bias"}, "mlp.fc2.bias"},
  };
  return names;
}

// Of one attention or MLP and its norm; `part` is its place in the block.
void add_t5_attention(std::vector<Name>& names, const char* const (&sources)[5],
                      const std::string& part, const char* attention) {
  const char* const targets[] = {".q.weight", ".k.weight", ".v.weight", ".o.weight"};
  for (size_t i = 0; i < 4; ++i) {
    names.push_back({{sources[i]}, fmt::format("{}.{}{}", part, attention, targets[i])});
  }
  names.push_back({{sources[4]}, part + ".layer_norm.weight"});
}

// Of blocks of both stacks, with their whole names: the first of the decoder has the encoder's last
// norm.
std::vector<Name> t5_block_names(const ModelSpec& model, const LayerSpec& layer) {
  const bool cross = layer.kind == LayerKind::kCrossBlock;
  const std::string block =
      cross ? fmt::format("decoder.block.{}", layer.index - 1 - model.num_layers)
            : fmt::format("encoder.block.{}", layer.index - 1);
  std::vector<Name> names;
  if (opens_decoder(model, layer)) {
    names.push_back({{"encoder_norm.weight"}, "encoder.final_layer_norm.weight"});
  }
  add_t5_attention(names,
                   {"attention.q.weight", "attention.k.weight", "attention.v.weight",
                    "attention.output.weight", "attention_norm.weight"},
                   block + ".layer.0", "SelfAttention");
  if (cross) {
    add_t5_attention(
        names,
        {"cross_attention.q.weight", "cross_attention.k.weight", "cross_attention.v.weight",
         "cross_attention.output.weight", "cross_attention_norm.weight"},
        block + ".layer.1", "EncDecAttention");
  }
  const std::string mlp = block + (cross ? ".layer.2" : ".layer.1");
  if (is_gated(model.mlp)) {
    names.push_back({{"mlp.gate.weight"}, mlp + ".DenseReluDense.wi_0.weight"});
    names.push_back({{"mlp.up.weight"}, mlp + ".DenseReluDense.wi_1.weight"});
  } else {
    names.push_back({{"mlp.up.weight"}, mlp + ".DenseReluDense.wi.weight"});
  }
  names.push_back({{"mlp.down.weight"}, mlp + ".DenseReluDense.wo.weight"});
  names.push_back({{"mlp_norm.weight"}, mlp + ".layer_norm.weight"});
  return names;
}

std::vector<Name> t5_embedding_names() {
  const std::string table = ".block.0.layer.0.SelfAttention.relative_attention_bias.weight";
  return {{{"tokens.weight"}, "shared.weight"},
          {{"relative.weight"}, "encoder" + table},
          {{"decoder_relative.weight"}, "decoder" + table}};
}

std::vector<Name> head_names(const ModelSpec& model, Twin twin) {
  std::vector<Name> names;
  switch (twin) {
    case Twin::kGpt2:
      names = {{{"norm.weight"}, "transformer.ln_f.weight"},
               {{"norm.bias"}, "transformer.ln_f.bias"}};
      break;
    case Twin::kPhi:
      names = {{{"norm.weight"}, "model.final_layernorm.weight"},
               {{"norm.bias"}, "model.final_layernorm.bias"},
               {{"bias"}, "lm_head.bias"}};
      break;
    case Twin::kT5: names = {{{"norm.weight"}, "decoder.final_layer_norm.weight"}}; break;
    default: names = {{{"norm.weight"}, "model.norm.weight"}};
  }
  if (!model.tied_embeddings) names.push_back({{"weight"}, "lm_head.weight"});
  return names;
}

// Of a layer of a model that has a twin: the prefix of their names, and the names.
std::pair<std::string, std::vector<Name>> names_of(const ModelSpec& model, const LayerSpec& layer,
                                                   Twin twin) {
  const bool gpt2 = twin == Twin::kGpt2;
  switch (layer.kind) {
    case LayerKind::kEmbedding:
      if (twin == Twin::kT5) return {"", t5_embedding_names()};
      if (gpt2) {
        return {"transformer.",
                {{{"tokens.weight"}, "wte.weight"}, {{"positions.weight"}, "wpe.weight"}}};
      }
      return {"model.", {{{"tokens.weight"}, "embed_tokens.weight"}}};
    case LayerKind::kGpt2Block:
    case LayerKind::kLlamaBlock:
    case LayerKind::kBlock:
      if (twin == Twin::kT5) return {"", t5_block_names(model, layer)};
      if (gpt2) return {fmt::format("transformer.h.{}.", layer.index - 1), gpt2_block_names()};
      return {fmt::format("model.layers.{}.", layer.index - 1),
              twin == Twin::kPhi ? phi_block_names() : llama_block_names(model)};
    case LayerKind::kCrossBlock: return {"", t5_block_names(model, layer)};
    case LayerKind::kHead: return {"", head_names(model, twin)};
    case LayerKind::kOperators:
    case LayerKind::kLastOperators:  // under their own names
    case LayerKind::kMoeBlock:
    case LayerKind::kMtpBlock: break;  // engine_rules.h refuses them
  }
  check_failed(__FILE__, __LINE__, "a kind of layer that the engine does not run");
}

HuggingFaceTensor tensor_of(const Name& name, const std::string& prefix, const LayerSpec& layer,
                            const std::vector<ParameterSpec>& parameters) {
  HuggingFaceTensor tensor;
  tensor.name = prefix + name.target;
  tensor.transposed = name.transposed;
  int64_t rows = 0;
  for (const char* source : name.sources) {
    const std::string wanted = layer.name + "." + source;
    const size_t before = tensor.sources.size();
    for (const ParameterSpec& parameter : parameters) {
      if (parameter.name == wanted) tensor.sources.push_back(parameter);
    }
    SMP_CHECK_EQ(tensor.sources.size(), before + 1);
    rows += tensor.sources.back().rows;
  }
  const ParameterSpec& first = tensor.sources.front();
  if (first.is_vector) {
    tensor.shape = {rows};
  } else if (tensor.transposed) {
    tensor.shape = {first.cols, rows};
  } else {
    tensor.shape = {rows, first.cols};
  }
  return tensor;
}

// By its name here.
HuggingFaceTensor own_tensor(const ParameterSpec& parameter) {
  HuggingFaceTensor tensor{
      .name = parameter.name, .shape = {parameter.rows}, .sources = {parameter}};
  if (!parameter.is_vector) tensor.shape.push_back(parameter.cols);
  return tensor;
}

const char* torch_name_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "float64";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    default: return "float32";
  }
}

struct TwinNames {
  const char* architecture;
  const char* model_type;
};

TwinNames names_of(Twin twin) {
  switch (twin) {
    case Twin::kGpt2: return {"GPT2LMHeadModel", "gpt2"};
    case Twin::kLlama: return {"LlamaForCausalLM", "llama"};
    case Twin::kMistral: return {"MistralForCausalLM", "mistral"};
    case Twin::kQwen2: return {"Qwen2ForCausalLM", "qwen2"};
    case Twin::kQwen3: return {"Qwen3ForCausalLM", "qwen3"};
    case Twin::kPhi: return {"PhiForCausalLM", "phi"};
    case Twin::kT5: return {"T5ForConditionalGeneration", "t5"};
    case Twin::kNone: return {"SmpForCausalLM", "smp"};
  }
  check_failed(__FILE__, __LINE__, "unknown twin");
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

nlohmann::ordered_json rope_of(const ModelSpec& model) {
  const bool plain = model.rope_scaling == RopeScaling::kNone;
  nlohmann::ordered_json rope = {
      {"rope_type", plain ? "default" : std::string(name_of(model.rope_scaling))}};
  if (!plain) rope["factor"] = model.rope_scaling_factor;
  if (model.rope_scaling == RopeScaling::kLlama3) {
    rope["low_freq_factor"] = model.rope_low_freq_factor;
    rope["high_freq_factor"] = model.rope_high_freq_factor;
    rope["original_max_position_embeddings"] = model.rope_original_positions;
  }
  return rope;
}

// In the spelling of transformers 4, then of 5.
void add_rope(const ModelSpec& model, nlohmann::ordered_json& config) {
  nlohmann::ordered_json rope = rope_of(model);
  config["rope_theta"] = model.rope_theta;
  if (model.rope_scaling != RopeScaling::kNone) config["rope_scaling"] = rope;
  rope["rope_theta"] = model.rope_theta;
  if (rotary_dim_of(model) != model.head_dim) {
    config["partial_rotary_factor"] = rope["partial_rotary_factor"] = rotary_factor(model);
  }
  config["rope_parameters"] = rope;
}

void add_own_keys(const ModelSpec& model, nlohmann::ordered_json& config) {
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

void add_keys_of(Twin twin, const ModelSpec& model, nlohmann::ordered_json& config) {
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

std::vector<HuggingFaceTensor> huggingface_tensors(const ModelSpec& model) {
  const Twin twin = twin_of(model);
  std::vector<HuggingFaceTensor> tensors;
  size_t used = 0;
  size_t parameters_in_all = 0;
  for (const LayerSpec& layer : layers_of(model)) {
    const std::vector<ParameterSpec> parameters = parameters_of(model, layer);
    parameters_in_all += parameters.size();
    if (twin == Twin::kNone) {
      for (const ParameterSpec& parameter : parameters) {
        tensors.push_back(own_tensor(parameter));
      }
      used += parameters.size();
      continue;
    }
    const auto [prefix, names] = names_of(model, layer, twin);
    for (const Name& name : names) {
      tensors.push_back(tensor_of(name, prefix, layer, parameters));
      used += name.sources.size();
    }
  }
  SMP_CHECK_EQ(used, parameters_in_all);
  return tensors;
}

std::string huggingface_config(const ModelSpec& model, DType dtype) {
  nlohmann::ordered_json config;
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
