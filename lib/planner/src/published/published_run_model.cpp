#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "published/published_run.h"

namespace smp::published {
namespace {

struct Family {
  const char* word;  // in the model's name
  MlpKind mlp;
  NormKind norm;
  PositionKind positions;
  bool biases;
  bool tied;
  bool parallel_residual;
};

// The first whose word the name holds; GPT else.
constexpr std::array kFamilies = {
    Family{"bert", MlpKind::kGelu, NormKind::kLayerNorm, PositionKind::kLearned, true, true, false},
    Family{"t5", MlpKind::kGelu, NormKind::kLayerNorm, PositionKind::kLearned, true, true, false},
    Family{"bloom", MlpKind::kGelu, NormKind::kLayerNorm, PositionKind::kAlibi, true, true, false},
    Family{"mpt", MlpKind::kGelu, NormKind::kLayerNorm, PositionKind::kLearned, false, true, false},
    Family{"opt-", MlpKind::kRelu, NormKind::kLayerNorm, PositionKind::kLearned, true, true, false},
    Family{"neox", MlpKind::kGelu, NormKind::kLayerNorm, PositionKind::kRotary, true, false, true},
    Family{"pythia", MlpKind::kGelu, NormKind::kLayerNorm, PositionKind::kRotary, true, false,
           true},
    Family{"falcon", MlpKind::kGelu, NormKind::kLayerNorm, PositionKind::kRotary, false, true,
           true},
    Family{"nemotron", MlpKind::kRelu, NormKind::kLayerNorm, PositionKind::kRotary, false, false,
           false},
    Family{"gemma", MlpKind::kGeglu, NormKind::kRmsNorm, PositionKind::kRotary, false, true, false},
    Family{"llama", MlpKind::kSwiglu, NormKind::kRmsNorm, PositionKind::kRotary, false, false,
           false},
    Family{"mistral", MlpKind::kSwiglu, NormKind::kRmsNorm, PositionKind::kRotary, false, false,
           false},
    Family{"mixtral", MlpKind::kSwiglu, NormKind::kRmsNorm, PositionKind::kRotary, false, false,
           false},
    Family{"internlm", MlpKind::kSwiglu, NormKind::kRmsNorm, PositionKind::kRotary, false, false,
           false},
    Family{"qwen", MlpKind::kSwiglu, NormKind::kRmsNorm, PositionKind::kRotary, false, false,
           false},
    Family{"deepseek", MlpKind::kSwiglu, NormKind::kRmsNorm, PositionKind::kRotary, false, false,
           false},
    Family{"gpt", MlpKind::kGelu, NormKind::kLayerNorm, PositionKind::kLearned, true, true, false},
};

const Family& family_of(const std::string& model) {
  for (const Family& family : kFamilies) {
    if (contains(model, family.word)) return family;
  }
  return kFamilies.back();
}

// "8x7b" in a name is 8 experts; a size like "7b" is 7 billion parameters.
struct NamedSize {
  double billions = 0;
  int64_t experts = 0;
};

NamedSize size_in_name(const std::string& model) {
  NamedSize size;
  for (size_t i = 0; i < model.size(); ++i) {
    if (!std::isdigit(static_cast<unsigned char>(model[i]))) continue;
    char* end = nullptr;
    const double number = std::strtod(model.c_str() + i, &end);
    const size_t next = static_cast<size_t>(end - model.c_str());
    char* each = nullptr;  // "8x7b", not "8x1xnone"
    if (*end == 'x' && std::strtod(end + 1, &each) > 0 && *each == 'b') {
      size.experts = static_cast<int64_t>(number);
    } else if (*end == 'b') {
      size.billions = number;
    } else if (*end == 't' && size.billions == 0) {
      size.billions = number * 1000;
    } else if (*end == 'm' && size.billions == 0) {
      size.billions = number / 1000;
    }
    i = next == i ? i : next - 1;
  }
  return size;
}

void refuse_what_is_no_transformer(RunCells& cells, const std::string& model) {
  const auto pattern = cells.note("hybrid-layer-pattern");
  const auto override_pattern = cells.note("hybrid-override-pattern");
  if (pattern || override_pattern || contains(model, "mamba") || model.rfind("hybrid/", 0) == 0) {
    cells.problem(fmt::format("model '{}' has Mamba layers{}", cells.text("model"),
                              pattern ? fmt::format(" (hybrid-layer-pattern={})", *pattern) : ""));
  }
  for (const char* word :
       {"multimodal", "llava", "vision", "vit", "dlrm", "resnet", "diffusion", "flux", "wan2"}) {
    if (contains(model, word)) {
      cells.problem(
          fmt::format("model '{}' is not only a language model ({})", cells.text("model"), word));
      return;
    }
  }
}

// What the cells do not say of the shape, from the published shape of that size.
void fill_shape(RunCells& cells, ModelSpec& model, const std::string& name, NamedSize size,
                int64_t stages) {
  if (model.num_layers > 0 && model.hidden_size > 0 && model.num_heads > 0) return;
  double billions = cells.number("params_b").value_or(0);
  if (billions == 0) billions = size.billions;
  if (billions == 0) {
    for (const char* column : {"layers", "hidden", "heads"}) {
      if (!cells.has(column)) {
        cells.problem(fmt::format("{} is empty, and the row gives no model size", column));
      }
    }
    return;
  }
  const KnownShape& shape = *known_shape(name, billions);
  const bool published = std::abs(shape.billions / billions - 1) <= 0.1;
  const auto width_for = [&](int64_t layers) {
    const double exact = std::sqrt(billions * 1e9 / (12.0 * double(layers)));
    return std::max<int64_t>(64, std::llround(exact / 64) * 64);
  };
  if (model.num_layers > 0) {
    if (model.hidden_size == 0) {
      model.hidden_size = published && shape.layers == model.num_layers
                              ? shape.hidden
                              : width_for(model.num_layers);
    }
  } else {
    const bool width_known = model.hidden_size > 0;
    if (!width_known) model.hidden_size = shape.hidden;
    const double square = 12.0 * double(model.hidden_size) * double(model.hidden_size);
    model.num_layers = published && model.hidden_size == shape.hidden
                           ? shape.layers
                           : std::max<int64_t>(1, std::llround(billions * 1e9 / square));
    if (model.num_layers % stages != 0) {  // the same number on each stage
      model.num_layers = std::max<int64_t>(1, (model.num_layers + stages / 2) / stages) * stages;
      if (!width_known) model.hidden_size = width_for(model.num_layers);
    }
  }
  if (model.num_heads == 0) {
    model.num_heads = model.hidden_size == shape.hidden
                          ? shape.heads
                          : std::max<int64_t>(1, model.hidden_size / 128);
  }
  cells.assume(fmt::format("shape of {:g} B parameters: {} layers of {}, {} heads", billions,
                           model.num_layers, model.hidden_size, model.num_heads));
}

int64_t default_vocabulary(const std::string& name, double billions) {
  if (contains(name, "bert")) return 30522;
  if (contains(name, "t5")) return 32128;
  if (contains(name, "mpt")) return 50368;
  return known_shape(name, billions)->vocab;
}

int64_t default_ffn(const ModelSpec& model) {
  if (!is_gated(model.mlp)) return 4 * model.hidden_size;
  // Megatron: two thirds of 4 h, down to a multiple of 64.
  return std::max<int64_t>(64, 4 * model.hidden_size * 2 / 3 / 64 * 64);
}

// "([0]*3+[1]*5)": three dense blocks, then five with experts.
void read_layer_frequency(RunCells& cells, ModelSpec& model) {
  const auto frequency = cells.note("moe-layer-freq");
  if (!frequency) return;
  int64_t dense = 0;
  int64_t experts = 0;
  char rest = 0;
  if (std::sscanf(frequency->c_str(), "([0]*%ld+[1]*%ld%c", &dense, &experts, &rest) == 3 &&
      rest == ')' && dense + experts == model.num_layers) {
    model.first_dense_layers = dense;
    return;
  }
  if (const auto period = leading_number(*frequency)) {
    model.moe_layer_period = static_cast<int64_t>(*period);
    return;
  }
  cells.problem(fmt::format("notes: moe-layer-freq={} is not understood", *frequency));
}

struct KnownExperts {
  const char* word;
  int64_t experts, per_token, ffn, shared_ffn, dense_layers;
};
// Model cards and config.json of the Hugging Face hub.
constexpr std::array kKnownExperts = {
    KnownExperts{"mixtral", 8, 2, 0, 0, 0},
    KnownExperts{"deepseek-v3", 256, 8, 2048, 2048, 3},
    KnownExperts{"deepseek-r1", 256, 8, 2048, 2048, 3},
    KnownExperts{"deepseek-v2-lite", 64, 6, 1408, 2816, 1},
    KnownExperts{"qwen3-30b-a3b", 128, 8, 768, 0, 0},
    KnownExperts{"qwen3-235b-a22b", 128, 8, 1536, 0, 0},
};

void read_experts(RunCells& cells, ModelSpec& model, const std::string& name, NamedSize size) {
  const auto first_note = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (const auto value = cells.note_count(key)) return *value;
    }
    return int64_t{0};
  };
  model.num_experts = first_note({"num-experts", "num_experts", "experts", "num_moe_experts"});
  model.experts_per_token = first_note(
      {"moe-router-topk", "moe_router_topk", "top_k", "topk", "top-k", "experts_per_token"});
  model.expert_ffn_hidden_size =
      first_note({"moe-ffn-hidden-size", "moe_ffn_hidden_size", "moe_ffn"});
  model.shared_expert_ffn_hidden_size =
      first_note({"moe-shared-expert-intermediate-size", "moe_shared_expert_intermediate_size"});
  for (const KnownExperts& known : kKnownExperts) {
    if (model.num_experts > 0 || !contains(name, known.word)) continue;
    model.num_experts = size.experts > 0 ? size.experts : known.experts;
    if (model.experts_per_token == 0) model.experts_per_token = known.per_token;
    if (model.expert_ffn_hidden_size == 0) model.expert_ffn_hidden_size = known.ffn;
    if (model.shared_expert_ffn_hidden_size == 0) {
      model.shared_expert_ffn_hidden_size = known.shared_ffn;
    }
    model.first_dense_layers = known.dense_layers;
  }
  if (model.num_experts == 0) model.num_experts = size.experts;
  if (model.num_experts == 0) {
    if (cells.degree("ep").value_or(1) > 1) {
      cells.problem(
          "ep is above 1, but the row gives no number of experts: set num-experts in notes");
    }
    return;
  }
  if (model.experts_per_token == 0) model.experts_per_token = 2;  // Megatron's --moe-router-topk
  if (model.expert_ffn_hidden_size == 0) model.expert_ffn_hidden_size = model.ffn_hidden_size;
  read_layer_frequency(cells, model);
}

// Megatron's --multi-latent-attention with the sizes that its arguments default to.
void read_latent_attention(RunCells& cells, ModelSpec& model, const std::string& name) {
  const bool deepseek = contains(name, "deepseek-v") || contains(name, "deepseek-r");
  if (!cells.has_note("multi-latent-attention") && !deepseek) return;
  model.kv_lora_rank = cells.note_count("kv-lora-rank").value_or(deepseek ? 512 : 32);
  model.q_lora_rank =
      cells.note_count("q-lora-rank").value_or(deepseek && model.num_layers > 27 ? 1536 : 0);
  model.qk_head_dim = cells.note_count("qk-head-dim").value_or(128);
  model.qk_rope_head_dim = cells.note_count("qk-pos-emb-head-dim").value_or(64);
  model.v_head_dim = cells.note_count("v-head-dim").value_or(128);
}

void read_words(RunCells& cells, ModelSpec& model, double usual_dropout) {
  const std::string mlp = cells.word("mlp");
  if (mlp == "gelu" || mlp == "quick_gelu" || mlp == "gelu_tanh" || mlp == "gelu_new") {
    model.mlp = MlpKind::kGelu;
  } else if (mlp == "swiglu" || mlp == "silu" || mlp == "gated" || mlp == "llama") {
    model.mlp = MlpKind::kSwiglu;
  } else if (mlp == "geglu") {
    model.mlp = MlpKind::kGeglu;
  } else if (mlp == "relu" || mlp == "squared_relu" || mlp == "relu2" || mlp == "squared-relu") {
    model.mlp = MlpKind::kRelu;
  } else if (!mlp.empty()) {
    cells.not_understood("mlp");
  }
  const std::string norm = lower_case(cells.note("normalization").value_or(""));
  if (norm == "rmsnorm") {
    model.norm = NormKind::kRmsNorm;
  } else if (!norm.empty() && norm != "layernorm") {
    cells.problem(fmt::format("notes: normalization={} is not understood", norm));
  }
  const std::string positions = lower_case(cells.note("position-embedding-type").value_or(""));
  if (positions == "rope" || positions == "yarn" || positions == "mrope") {
    model.position_embedding = PositionKind::kRotary;
  } else if (positions == "none") {
    model.position_embedding = PositionKind::kNone;
  } else if (positions == "alibi") {
    model.position_embedding = PositionKind::kAlibi;
  } else if (!positions.empty() && positions != "learned_absolute") {
    cells.problem(fmt::format("notes: position-embedding-type={} is not understood", positions));
  }
  if (cells.mentions("alibi") || cells.mentions("tr11"))
    model.position_embedding = PositionKind::kAlibi;
  // Megatron's own tests name every argument that is not the default, which is 0.1.
  const bool defaults = cells.mentions("golden_values");
  const bool learned = model.position_embedding == PositionKind::kLearned;
  const double dropout = learned || defaults ? usual_dropout : 0;
  const auto share = [&](const char* key) {
    const auto note = cells.note(key);
    return note ? std::strtod(note->c_str(), nullptr) : dropout;
  };
  model.attention_dropout = share("attention-dropout");
  model.hidden_dropout = share("hidden-dropout");
}

}  // namespace

ModelSpec model_of_run(RunCells& cells, const framework::UsualSettings& usual, int64_t stages) {
  std::string name = cells.word("model");
  std::replace(name.begin(), name.end(), '_', '-');
  refuse_what_is_no_transformer(cells, name);
  const Family& family = family_of(name);
  const NamedSize size = size_in_name(name);
  ModelSpec model;
  model.name = cells.text("model");
  model.family = ModelFamily::kTransformer;
  if (contains(name, "bert")) model.stack = Stack::kEncoder;
  if (name == "t5" || name.rfind("t5/", 0) == 0 || name.rfind("t5-", 0) == 0 ||
      name.rfind("mt5", 0) == 0) {
    model.stack = Stack::kEncoderDecoder;
  }
  model.mlp = family.mlp;
  model.norm = family.norm;
  model.position_embedding = family.positions;
  model.parallel_residual = family.parallel_residual;
  read_words(cells, model, usual.dropout);
  const bool biases = family.biases && !cells.has_note("disable-bias-linear");
  model.qkv_bias = biases || cells.has_note("add-qkv-bias") || contains(name, "qwen2");
  model.attention_output_bias = biases;
  model.mlp_bias = biases;
  model.qk_norm = contains(name, "qwen3") || cells.has_note("qk-layernorm");

  model.num_layers = cells.degree("layers").value_or(0);
  model.hidden_size = cells.degree("hidden").value_or(0);
  model.num_heads = cells.degree("heads").value_or(0);
  fill_shape(cells, model, name, size, stages);
  if (model.num_heads <= 0 || model.hidden_size <= 0 || model.num_layers <= 0) return model;
  const double billions = cells.number("params_b")
                              .value_or(12e-9 * double(model.num_layers) *
                                        double(model.hidden_size) * double(model.hidden_size));
  const KnownShape& shape = *known_shape(name, billions);
  const bool same_shape = shape.hidden == model.hidden_size && shape.layers == model.num_layers;
  model.num_kv_heads =
      cells.degree("kv_heads").value_or(same_shape ? shape.kv_heads : model.num_heads);
  model.head_dim = cells.note_count("kv-channels").value_or(model.hidden_size / model.num_heads);
  model.ffn_hidden_size = cells.degree("ffn").value_or(same_shape ? shape.ffn : default_ffn(model));
  model.vocab_size = cells.degree("vocab").value_or(0);
  if (model.vocab_size == 0) {
    const bool gpt2 = cells.mentions("gpt2bpe") && !contains(name, "bert");
    model.vocab_size = gpt2 ? 50257 : default_vocabulary(name, billions);
    cells.assume(fmt::format("vocabulary of {}", model.vocab_size));
  }
  if (usual.vocab_multiple_of > 1) {
    model.vocab_multiple_of =
        cells.note_count("make-vocab-size-divisible-by").value_or(usual.vocab_multiple_of);
  }
  model.tied_embeddings = cells.yes_or_no("tied_emb").value_or(family.tied);
  model.decoder_layers = model.stack == Stack::kEncoderDecoder ? model.num_layers : 0;
  read_experts(cells, model, name, size);
  read_latent_attention(cells, model, name);
  model.num_mtp_layers = cells.note_count("mtp-num-layers").value_or(0);
  return model;
}

}  // namespace smp::published
