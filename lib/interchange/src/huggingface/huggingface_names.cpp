#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "huggingface/huggingface_class.h"
#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/parameter_counts.h"

// Names and shapes: transformers/models/{gpt2,gpt_oss,llama,mistral,olmoe,phi,qwen2,qwen3,
// t5}/modeling_*.py.
namespace smp::huggingface {
namespace {

// Names of ours -> the name of theirs, within one layer. Of a parameter of all experts the tensor
// has the rows of one, or a matrix for each.
struct Name {
  std::vector<const char*> sources;
  std::string target;
  bool transposed = false;
  int64_t expert = 0;
  int64_t experts = 0;  // 0: the tensor is a matrix
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

struct ExpertNames {
  std::string mlp;  // the part of the block
  const char *gate, *up, *down;
  std::string shared = "shared_expert";
};

void add_expert_names(std::vector<Name>& names, const ModelSpec& model, const ExpertNames& theirs) {
  names.push_back({{"mlp.router.weight"}, theirs.mlp + ".gate.weight"});
  if (model.router_correction_bias) {
    names.push_back({{"mlp.router.correction_bias"}, theirs.mlp + ".gate.e_score_correction_bias"});
  }
  const auto add = [&](const std::string& part, int64_t expert, const char* source,
                       const char* target) {
    names.push_back(
        {{source}, fmt::format("{}.{}.{}.weight", theirs.mlp, part, target), false, expert});
  };
  for (int64_t expert = 0; expert < model.num_experts; ++expert) {
    const std::string part = fmt::format("experts.{}", expert);
    add(part, expert, "mlp.experts.gate.weight", theirs.gate);
    add(part, expert, "mlp.experts.up.weight", theirs.up);
    add(part, expert, "mlp.experts.down.weight", theirs.down);
  }
  if (model.shared_expert_ffn_hidden_size == 0) return;
  add(theirs.shared, 0, "mlp.shared_expert.gate.weight", theirs.gate);
  add(theirs.shared, 0, "mlp.shared_expert.up.weight", theirs.up);
  add(theirs.shared, 0, "mlp.shared_expert.down.weight", theirs.down);
  if (model.shared_expert_gate) {
    names.push_back({{"mlp.shared_expert_gate.weight"}, theirs.mlp + ".shared_expert_gate.weight"});
  }
}

// Each expert's matrices are [in, out]; rows of gate and up take turns.
void add_gpt_oss_names(std::vector<Name>& names, const ModelSpec& model) {
  names.push_back({{"attention.sinks"}, "self_attn.sinks"});
  names.push_back({{"mlp.router.weight"}, "mlp.router.weight"});
  names.push_back({{"mlp.router.bias"}, "mlp.router.bias"});
  const auto add = [&](std::vector<const char*> sources, const char* target, bool transposed) {
    names.push_back({std::move(sources), target, transposed, 0, model.num_experts});
  };
  add({"mlp.experts.gate.weight", "mlp.experts.up.weight"}, "mlp.experts.gate_up_proj", true);
  add({"mlp.experts.gate.bias", "mlp.experts.up.bias"}, "mlp.experts.gate_up_proj_bias", false);
  add({"mlp.experts.down.weight"}, "mlp.experts.down_proj", true);
  add({"mlp.experts.down.bias"}, "mlp.experts.down_proj_bias", false);
}

void add_latent_attention_names(std::vector<Name>& names, const ModelSpec& model) {
  if (model.q_lora_rank > 0) {
    names.push_back({{"attention.q_down.weight"}, "self_attn.q_a_proj.weight"});
    names.push_back({{"attention.q_down_norm.weight"}, "self_attn.q_a_layernorm.weight"});
    names.push_back({{"attention.q_up.weight"}, "self_attn.q_b_proj.weight"});
  } else {
    names.push_back({{"attention.q.weight"}, "self_attn.q_proj.weight"});
  }
  names.push_back({{"attention.kv_down.weight"}, "self_attn.kv_a_proj_with_mqa.weight"});
  names.push_back({{"attention.kv_down_norm.weight"}, "self_attn.kv_a_layernorm.weight"});
  names.push_back({{"attention.kv_up.weight"}, "self_attn.kv_b_proj.weight"});
}

std::vector<Name> llama_block_names(const ModelSpec& model, bool has_experts,
                                    HuggingFaceClass model_class) {
  std::vector<Name> names = {
      {{"attention_norm.weight"}, "input_layernorm.weight"},
      {{"attention.output.weight"}, "self_attn.o_proj.weight"},
      {{"mlp_norm.weight"}, "post_attention_layernorm.weight"},
  };
  if (model.kv_lora_rank > 0) {
    add_latent_attention_names(names, model);
  } else {
    names.push_back({{"attention.q.weight"}, "self_attn.q_proj.weight"});
    names.push_back({{"attention.k.weight"}, "self_attn.k_proj.weight"});
    names.push_back({{"attention.v.weight"}, "self_attn.v_proj.weight"});
  }
  if (!has_experts) {
    names.push_back({{"mlp.gate.weight"}, "mlp.gate_proj.weight"});
    names.push_back({{"mlp.up.weight"}, "mlp.up_proj.weight"});
    names.push_back({{"mlp.down.weight"}, "mlp.down_proj.weight"});
  } else if (model_class == HuggingFaceClass::kGptOss) {
    add_gpt_oss_names(names, model);
  } else if (model_class == HuggingFaceClass::kMixtral) {
    add_expert_names(names, model, {"block_sparse_moe", "w1", "w3", "w2"});
  } else {
    const bool of_qwen =
        model_class == HuggingFaceClass::kQwen2Moe || model_class == HuggingFaceClass::kQwen3Moe;
    add_expert_names(
        names, model,
        {"mlp", "gate_proj", "up_proj", "down_proj", of_qwen ? "shared_expert" : "shared_experts"});
  }
  if (model.qkv_bias) {
    names.push_back({{"attention.q.bias"}, "self_attn.q_proj.bias"});
    names.push_back({{"attention.k.bias"}, "self_attn.k_proj.bias"});
    names.push_back({{"attention.v.bias"}, "self_attn.v_proj.bias"});
  }
  if (model.attention_output_bias) {
    names.push_back({{"attention.output.bias"}, "self_attn.o_proj.bias"});
  }
  if (model.mlp_bias && !has_experts) {
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

// Names of one attention and its norm; `part` is its place in the block.
void add_t5_attention(std::vector<Name>& names, const char* const (&sources)[5],
                      const std::string& part, const char* attention) {
  const char* const targets[] = {".q.weight", ".k.weight", ".v.weight", ".o.weight"};
  for (size_t i = 0; i < 4; ++i) {
    names.push_back({{sources[i]}, fmt::format("{}.{}{}", part, attention, targets[i])});
  }
  names.push_back({{sources[4]}, part + ".layer_norm.weight"});
}

// Names of a block of either stack, with their prefixes. The first block of the decoder has the
// encoder's last norm.
std::vector<Name> t5_block_names(const ModelSpec& model, const model::LayerSpec& layer) {
  const bool cross = layer.kind == model::LayerKind::kCrossBlock;
  const std::string block =
      cross ? fmt::format("decoder.block.{}", layer.index - 1 - model.num_layers)
            : fmt::format("encoder.block.{}", layer.index - 1);
  std::vector<Name> names;
  if (model::opens_decoder(model, layer)) {
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

std::vector<Name> projection_names(const ModelSpec& model) {
  if (model.tied_embeddings) return {};
  return {{{"weight"}, "lm_head.weight"}};
}

std::vector<Name> head_names(const ModelSpec& model, HuggingFaceClass model_class) {
  std::vector<Name> names;
  if (model.num_mtp_layers > 0) return projection_names(model);
  switch (model_class) {
    case HuggingFaceClass::kGpt2:
      names = {{{"norm.weight"}, "transformer.ln_f.weight"},
               {{"norm.bias"}, "transformer.ln_f.bias"}};
      break;
    case HuggingFaceClass::kPhi:
      names = {{{"norm.weight"}, "model.final_layernorm.weight"},
               {{"norm.bias"}, "model.final_layernorm.bias"},
               {{"bias"}, "lm_head.bias"}};
      break;
    case HuggingFaceClass::kT5:
      names = {{{"norm.weight"}, "decoder.final_layer_norm.weight"}};
      break;
    default: names = {{{"norm.weight"}, "model.norm.weight"}};
  }
  std::ranges::move(projection_names(model), std::back_inserter(names));
  return names;
}

// Of a layer that predicts a further token, as DeepSeek's files have it behind the last block. The
// first one has the model's final norm.
std::vector<Name> further_token_names(const ModelSpec& model, const model::LayerSpec& layer,
                                      HuggingFaceClass model_class) {
  std::vector<Name> names = llama_block_names(model, model::has_experts(model, layer), model_class);
  names.push_back({{"token_norm.weight"}, "enorm.weight"});
  names.push_back({{"hidden_norm.weight"}, "hnorm.weight"});
  names.push_back({{"projection.weight"}, "eh_proj.weight"});
  names.push_back({{"norm.weight"}, "shared_head.norm.weight"});
  for (Name& name : names) {
    name.target = fmt::format("model.layers.{}.{}", layer.index - 1, name.target);
  }
  if (model::mtp_depth(model, layer) == 1) {
    names.push_back({{"model_norm.weight"}, "model.norm.weight"});
  }
  return names;
}

// For a layer of a model that has a class: the prefix of its names, and the names.
std::pair<std::string, std::vector<Name>> names_of(const ModelSpec& model,
                                                   const model::LayerSpec& layer,
                                                   HuggingFaceClass model_class) {
  const bool gpt2 = model_class == HuggingFaceClass::kGpt2;
  switch (layer.kind) {
    case model::LayerKind::kEmbedding:
      if (model_class == HuggingFaceClass::kT5) return {"", t5_embedding_names()};
      if (gpt2) {
        return {"transformer.",
                {{{"tokens.weight"}, "wte.weight"}, {{"positions.weight"}, "wpe.weight"}}};
      }
      return {"model.", {{{"tokens.weight"}, "embed_tokens.weight"}}};
    case model::LayerKind::kBlock:
    case model::LayerKind::kMoeBlock:
      if (model_class == HuggingFaceClass::kT5) return {"", t5_block_names(model, layer)};
      if (gpt2) return {fmt::format("transformer.h.{}.", layer.index - 1), gpt2_block_names()};
      return {
          fmt::format("model.layers.{}.", layer.index - 1),
          model_class == HuggingFaceClass::kPhi
              ? phi_block_names()
              : llama_block_names(model, layer.kind == model::LayerKind::kMoeBlock, model_class)};
    case model::LayerKind::kCrossBlock: return {"", t5_block_names(model, layer)};
    case model::LayerKind::kMtpBlock: return {"", further_token_names(model, layer, model_class)};
    case model::LayerKind::kHead: return {"", head_names(model, model_class)};
    case model::LayerKind::kOperators:
    case model::LayerKind::kLastOperators: break;  // under their own names
  }
  check_failed(__FILE__, __LINE__, "a kind of layer that the engine does not run");
}

HuggingFaceMatrix matrix_of(const Name& name, int64_t expert, const model::LayerSpec& layer,
                            const std::vector<model::ParameterSpec>& parameters) {
  HuggingFaceMatrix matrix{.sources = {}, .transposed = name.transposed};
  const bool take_turns = name.experts > 0;
  int64_t rows = 0;
  for (const char* source : name.sources) {
    const std::string wanted = layer.name + "." + source;
    const auto parameter = std::ranges::find(parameters, wanted, &model::ParameterSpec::name);
    SMP_CHECK(parameter != parameters.end());
    const int64_t count = parameter->is_expert ? parameter->row_unit : parameter->rows;
    const auto place = static_cast<int64_t>(matrix.sources.size());
    matrix.sources.push_back({.parameter = *parameter,
                              .begin = expert * count,
                              .end = (expert + 1) * count,
                              .first = take_turns ? place : rows,
                              .step = take_turns ? static_cast<int64_t>(name.sources.size()) : 1});
    rows += count;
  }
  return matrix;
}

HuggingFaceTensor tensor_of(const Name& name, const std::string& prefix,
                            const model::LayerSpec& layer,
                            const std::vector<model::ParameterSpec>& parameters) {
  HuggingFaceTensor tensor{.name = prefix + name.target, .shape = {}, .matrices = {}};
  for (int64_t i = 0; i < std::max<int64_t>(1, name.experts); ++i) {
    const int64_t expert = name.experts > 0 ? i : name.expert;
    tensor.matrices.push_back(matrix_of(name, expert, layer, parameters));
  }
  const HuggingFaceMatrix& first = tensor.matrices.front();
  if (name.experts > 0) tensor.shape.push_back(name.experts);
  if (first.sources.front().parameter.is_vector) {
    tensor.shape.push_back(first.rows());
  } else if (first.transposed) {
    tensor.shape.insert(tensor.shape.end(), {first.cols(), first.rows()});
  } else {
    tensor.shape.insert(tensor.shape.end(), {first.rows(), first.cols()});
  }
  return tensor;
}

// A tensor under our own name.
HuggingFaceTensor own_tensor(const model::ParameterSpec& parameter) {
  HuggingFaceTensor tensor{
      .name = parameter.name,
      .shape = {parameter.rows},
      .matrices = {{.sources = {{.parameter = parameter, .begin = 0, .end = parameter.rows}}}}};
  if (!parameter.is_vector) tensor.shape.push_back(parameter.cols);
  return tensor;
}

}  // namespace

int64_t HuggingFaceMatrix::rows() const {
  int64_t rows = 0;
  for (const SourceRows& source : sources) rows += source.count();
  return rows;
}

std::vector<HuggingFaceTensor> huggingface_tensors(const ModelSpec& model) {
  const HuggingFaceClass model_class = class_of(model);
  std::vector<HuggingFaceTensor> tensors;
  int64_t used = 0, in_all = 0;  // elements
  for (const model::LayerSpec& layer : model::layers_of(model)) {
    const std::vector<model::ParameterSpec> parameters = model::parameters_of(model, layer);
    for (const model::ParameterSpec& parameter : parameters) in_all += parameter.size();
    if (model_class == HuggingFaceClass::kNone) {
      for (const model::ParameterSpec& parameter : parameters) {
        tensors.push_back(own_tensor(parameter));
        used += parameter.size();
      }
      continue;
    }
    const auto [prefix, names] = names_of(model, layer, model_class);
    for (const Name& name : names) {
      tensors.push_back(tensor_of(name, prefix, layer, parameters));
      for (const HuggingFaceMatrix& matrix : tensors.back().matrices) used += matrix.size();
    }
  }
  SMP_CHECK_EQ(used, in_all);
  return tensors;
}

}  // namespace smp::huggingface
