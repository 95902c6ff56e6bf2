#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "smp/plan/check.h"
#include "smp/runtime/huggingface_export.h"

// Names and shapes: transformers/models/gpt2/modeling_gpt2.py and llama/modeling_llama.py; keys of
// config.json: their configuration_*.py, in the spelling of transformers 4 and of 5.
namespace smp {
namespace {

// Ours -> theirs, within one layer.
struct Name {
  std::vector<const char*> sources;
  const char* target;
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

const std::vector<Name>& llama_block_names() {
  static const std::vector<Name> names = {
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
  return names;
}

// Of the layers of one family: prefix of each, and the names within.
std::pair<std::string, std::vector<Name>> names_of(const ModelSpec& model, const LayerSpec& layer) {
  const bool gpt2 = model.family == ModelFamily::kGpt2;
  switch (layer.kind) {
    case LayerKind::kEmbedding:
      if (gpt2) {
        return {"transformer.",
                {{{"tokens.weight"}, "wte.weight"}, {{"positions.weight"}, "wpe.weight"}}};
      }
      return {"model.", {{{"tokens.weight"}, "embed_tokens.weight"}}};
    case LayerKind::kGpt2Block:
      return {fmt::format("transformer.h.{}.", layer.index - 1), gpt2_block_names()};
    case LayerKind::kLlamaBlock:
      return {fmt::format("model.layers.{}.", layer.index - 1), llama_block_names()};
    case LayerKind::kHead: {
      std::vector<Name> names;
      if (gpt2) {
        names = {{{"norm.weight"}, "transformer.ln_f.weight"},
                 {{"norm.bias"}, "transformer.ln_f.bias"}};
      } else {
        names = {{{"norm.weight"}, "model.norm.weight"}};
      }
      if (!model.tied_embeddings) names.push_back({{"weight"}, "lm_head.weight"});
      return {"", names};
    }
    case LayerKind::kBlock:
    case LayerKind::kMoeBlock:
    case LayerKind::kCrossBlock:
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

}  // namespace

std::vector<HuggingFaceTensor> huggingface_tensors(const ModelSpec& model) {
  std::vector<HuggingFaceTensor> tensors;
  size_t used = 0;
  size_t parameters_in_all = 0;
  for (const LayerSpec& layer : layers_of(model)) {
    const std::vector<ParameterSpec> parameters = parameters_of(model, layer);
    parameters_in_all += parameters.size();
    const auto [prefix, names] = names_of(model, layer);
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
  const bool gpt2 = model.family == ModelFamily::kGpt2;
  config["architectures"] = {gpt2 ? "GPT2LMHeadModel" : "LlamaForCausalLM"};
  config["model_type"] = gpt2 ? "gpt2" : "llama";
  config["vocab_size"] = model.vocab_size;
  if (gpt2) {
    config["n_positions"] = model.max_positions;
    config["n_embd"] = model.hidden_size;
    config["n_layer"] = model.num_layers;
    config["n_head"] = model.num_heads;
    config["n_inner"] = model.ffn_hidden_size;
    config["activation_function"] = "gelu_new";
    config["layer_norm_epsilon"] = model.norm_epsilon;
    config["resid_pdrop"] = 0.0;
    config["embd_pdrop"] = 0.0;
    config["attn_pdrop"] = 0.0;
  } else {
    config["hidden_size"] = model.hidden_size;
    config["intermediate_size"] = model.ffn_hidden_size;
    config["num_hidden_layers"] = model.num_layers;
    config["num_attention_heads"] = model.num_heads;
    config["num_key_value_heads"] = model.num_kv_heads;
    config["head_dim"] = model.head_dim;
    config["max_position_embeddings"] = model.max_positions;
    config["hidden_act"] = "silu";
    config["rms_norm_eps"] = model.norm_epsilon;
    config["attention_bias"] = false;
    config["mlp_bias"] = false;
    config["rope_theta"] = model.rope_theta;  // transformers 4
    config["rope_parameters"] = {{"rope_theta", model.rope_theta},
                                 {"rope_type", "default"}};  // transformers 5
  }
  config["initializer_range"] = model.initializer_range;
  config["tie_word_embeddings"] = model.tied_embeddings;
  // Bytes have no begin or end of text; the defaults would lie outside a small vocabulary.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  const char* type = dtype == DType::kF64 ? "float64" : "float32";
  config["torch_dtype"] = type;  // transformers 4
  config["dtype"] = type;        // transformers 5
  return config.dump(2) + "\n";
}

}  // namespace smp
