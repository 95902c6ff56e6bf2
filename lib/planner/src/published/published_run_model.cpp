#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "published/published_run.h"
#include "smp/plan/jobfile/model_catalog.h"
#include "smp/plan/jobfile/model_table.h"

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
    Family{"nemotron", MlpKind::kSquaredRelu, NormKind::kLayerNorm, PositionKind::kRotary, false,
           false, false},
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

// True if the model is one.
bool refuses_what_is_no_transformer(RunCells& cells, const std::string& model) {
  if (jobfile::find_unpriced_model(model) != nullptr) {
    cells.problem(jobfile::unknown_model(model));
    return true;
  }
  for (const char* word :
       {"multimodal", "llava", "vision", "vit", "dlrm", "resnet", "diffusion", "flux", "wan2"}) {
    if (contains(model, word)) {
      cells.problem(
          fmt::format("model '{}' is not only a language model ({})", cells.text("model"), word));
      return true;
    }
  }
  return false;
}

// "Qwen3_30B_a3B (tokendrop)" -> "qwen3-30b-a3b"
std::string named_in(const RunCells& cells) {
  std::string name = trimmed(cells.word("model").substr(0, cells.word("model").find('(')));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// A model that is not in the table: what its cells leave empty.
void complete_shape(RunCells& cells, ModelSpec& model, const std::string& name, int64_t stages) {
  if (model.num_layers > 0 && model.hidden_size > 0 && model.num_heads > 0) return;
  if (cells.number("params_b").value_or(0) > 0 && name.starts_with("gpt")) {
    return size_gpt(cells, model, stages);
  }
  for (const auto& [column, value] : {std::pair<const char*, int64_t>{"layers", model.num_layers},
                                      {"hidden", model.hidden_size},
                                      {"heads", model.num_heads}}) {
    if (value == 0 && !cells.has(column)) {
      return cells.problem(fmt::format("{} is empty: {}", column, jobfile::unknown_model(name)));
    }
  }
}

int64_t default_vocabulary(const std::string& name) {
  if (contains(name, "bert")) return 30522;
  if (contains(name, "t5")) return 32128;
  if (contains(name, "mpt")) return 50368;
  if (contains(name, "internlm")) return 103168;
  if (contains(name, "bloom")) return 250880;
  if (contains(name, "nemotron") || contains(name, "gemma")) return 256000;
  if (contains(name, "llama-3") || contains(name, "llama3")) return 128256;
  if (contains(name, "qwen")) return 151936;
  if (contains(name, "llama") || contains(name, "mistral") || contains(name, "mixtral")) {
    return 32000;
  }
  return 50257;
}

int64_t default_ffn(const ModelSpec& model) {
  if (!is_gated(model.mlp)) return 4 * model.hidden_size;
  // Megatron: two thirds of 4 h, down to a multiple of 64.
  return std::max<int64_t>(64, 4 * model.hidden_size * 2 / 3 / 64 * 64);
}

void read_words(RunCells& cells, ModelSpec& model, double usual_dropout) {
  const std::string mlp = cells.word("mlp");
  if (mlp == "gelu" || mlp == "quick_gelu" || mlp == "gelu_tanh" || mlp == "gelu_new") {
    model.mlp = MlpKind::kGelu;
  } else if (mlp == "swiglu" || mlp == "silu" || mlp == "gated" || mlp == "llama") {
    model.mlp = MlpKind::kSwiglu;
  } else if (mlp == "geglu") {
    model.mlp = MlpKind::kGeglu;
  } else if (mlp == "squared_relu" || mlp == "relu2" || mlp == "squared-relu") {
    model.mlp = MlpKind::kSquaredRelu;
  } else if (mlp == "relu") {
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

// What the row's family or its place in the table says; cells come later.
ModelSpec shape_before_cells(RunCells& cells, const std::string& name,
                             const jobfile::NamedModel* known) {
  ModelSpec model;
  if (known != nullptr) {
    model = jobfile::spec_of(*known).model;
    for (const char* column : {"layers", "hidden", "heads"}) {
      if (cells.has(column)) continue;
      cells.assume(fmt::format("shape of {}", known->name));
      break;
    }
    const auto hidden = cells.degree("hidden");
    if (hidden && *hidden != model.hidden_size) {  // another size of that family
      for (int64_t* size : {&model.num_heads, &model.num_kv_heads, &model.head_dim,
                            &model.ffn_hidden_size, &model.expert_ffn_hidden_size}) {
        *size = 0;
      }
    }
    if (model.vision_parameters > 0) cells.assume("the vision tower's time is not priced");
  } else {
    const Family& family = family_of(name);
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
    model.qkv_bias = family.biases || contains(name, "qwen2");
    model.attention_output_bias = model.mlp_bias = family.biases;
    model.qk_norm = contains(name, "qwen3");
    model.tied_embeddings = family.tied;
  }
  model.name = cells.text("model");
  return model;
}

}  // namespace

ModelSpec model_of_run(RunCells& cells, const framework::UsualSettings& usual, int64_t stages) {
  const std::string name = named_in(cells);
  if (refuses_what_is_no_transformer(cells, name)) return {};
  const jobfile::NamedModel* known = jobfile::find_model(name);
  ModelSpec model = shape_before_cells(cells, name, known);
  read_words(cells, model, usual.dropout);
  if (cells.has_note("disable-bias-linear")) {
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
  }
  if (cells.has_note("add-qkv-bias")) model.qkv_bias = true;
  if (cells.has_note("qk-layernorm")) model.qk_norm = true;

  read_layer_pattern(cells, model);
  model.num_layers = cells.degree("layers").value_or(model.num_layers);
  model.hidden_size = cells.degree("hidden").value_or(model.hidden_size);
  const int64_t heads = model.num_heads;
  model.num_heads = cells.degree("heads").value_or(heads);
  complete_shape(cells, model, name, stages);
  if (model.num_heads <= 0 || model.hidden_size <= 0 || model.num_layers <= 0) return model;
  if (model.num_heads != heads) model.num_kv_heads = model.head_dim = 0;  // of other heads
  const auto or_else = [](int64_t value, int64_t otherwise) {
    return value > 0 ? value : otherwise;
  };
  model.num_kv_heads =
      cells.degree("kv_heads").value_or(or_else(model.num_kv_heads, model.num_heads));
  model.head_dim = cells.note_count("kv-channels")
                       .value_or(or_else(model.head_dim, model.hidden_size / model.num_heads));
  model.ffn_hidden_size =
      cells.degree("ffn").value_or(or_else(model.ffn_hidden_size, default_ffn(model)));
  const auto vocabulary = cells.degree("vocab");
  if (vocabulary) {
    model.vocab_size = *vocabulary;
  } else {
    const bool gpt2 = cells.mentions("gpt2bpe") && !contains(name, "bert");
    if (gpt2 || model.vocab_size == 0) model.vocab_size = gpt2 ? 50257 : default_vocabulary(name);
    cells.assume(fmt::format("vocabulary of {}", model.vocab_size));
  }
  if (usual.vocab_multiple_of > 1) {
    model.vocab_multiple_of =
        cells.note_count("make-vocab-size-divisible-by").value_or(usual.vocab_multiple_of);
  }
  model.tied_embeddings = cells.yes_or_no("tied_emb").value_or(model.tied_embeddings);
  model.decoder_layers = model.stack == Stack::kEncoderDecoder ? model.num_layers : 0;
  read_experts(cells, model);
  read_latent_attention(cells, model);
  model.num_mtp_layers = cells.note_count("mtp-num-layers").value_or(model.num_mtp_layers);
  return model;
}

}  // namespace smp::published
