#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "importers/foreign_keys.h"
#include "importers/huggingface_rope.h"
#include "importers/huggingface_types.h"

// A Hugging Face config.json as the model section of a job file.
namespace smp::importers {
namespace {

using Blocks = HuggingFaceBlocks;

// Names for one size: a file that uses another type's name would be read with a default instead.
constexpr std::array kSizes = {&HuggingFaceType::hidden,   &HuggingFaceType::layers,
                               &HuggingFaceType::heads,    &HuggingFaceType::kv_heads,
                               &HuggingFaceType::head_dim, &HuggingFaceType::ffn,
                               &HuggingFaceType::epsilon,  &HuggingFaceType::activation};

class HuggingFaceModel {
 public:
  HuggingFaceModel(const HuggingFaceType& type, ForeignReader& reader)
      : type_(type), reader_(reader) {}

  void read() {
    refuse_names_of_others();
    refuse_nulls();
    blocks();
    const int64_t head_dim = sizes();
    const bool rotary = type_.blocks != Blocks::kGpt2 && type_.blocks != Blocks::kT5;
    set_positions(rotary ? read_huggingface_rope(type_, head_dim, reader_) : 0);
    experts();
    dropout();
    windows();
    dtypes();
  }

 private:
  void set(std::string_view key, std::string_view path, int64_t value) {
    reader_.set("model." + std::string(path), fmt::format("{}", value), origin(key));
  }
  void set_word(std::string_view key, std::string_view path, std::string_view value) {
    reader_.set("model." + std::string(path), std::string(value), origin(key));
  }
  std::string origin(std::string_view key) const {
    if (key.empty()) return std::string(type_.name);
    if (!reader_.has(key)) return fmt::format("{}, by default of {}", key, type_.name);
    return std::string(key);
  }

  void refuse_names_of_others() {
    for (const auto size : kSizes) {
      for (const HuggingFaceType& other : huggingface_types()) {
        const std::string_view key = other.*size;
        if (key.empty() || key == type_.*size || !reader_.has(key)) continue;
        if (is_own(key)) continue;
        reader_.error(key, type_.*size == "" ? fmt::format("{} is a key of {}; {} has none", key,
                                                           other.name, type_.name)
                                             : fmt::format("{} is a key of {}; {} calls it {}", key,
                                                           other.name, type_.name, type_.*size));
        break;
      }
    }
  }
  // transformers takes a default for a key that is absent, and None for null: of these sizes none
  // may be None. (KV heads, the width of a head, GPT-2's n_inner and T5's decoder layers may.)
  void refuse_nulls() {
    for (const std::string_view key :
         {type_.hidden, type_.layers, type_.heads, type_.epsilon, std::string_view("vocab_size")}) {
      reader_.refuse_null(key);
    }
    if (type_.ffn_default > 0) reader_.refuse_null(type_.ffn);
  }
  bool is_own(std::string_view key) const {
    return std::ranges::any_of(kSizes, [&](const auto size) { return type_.*size == key; });
  }

  int64_t size(std::string_view key, std::string_view path, int64_t fallback) {
    const int64_t value = reader_.whole(key).value_or(fallback);
    set(key, path, value);
    if (!reader_.has(key) && reader_.usable(key)) {
      reader_.note(fmt::format("{}: not given; {}'s default is {}", key, type_.name, fallback));
    }
    return value;
  }

  int64_t positions() const {
    return reader_.whole(type_.positions).value_or(type_.positions_default);
  }
  // `scaled`: what scaled rotary frequencies reach, or 0.
  void set_positions(int64_t scaled) {
    const int64_t value = scaled > 0 ? scaled : positions();
    if (value == 0) return;
    reader_.set("model.max_positions", fmt::format("{}", value),
                scaled > 0 ? "the original positions x the factor of the rope scaling"
                           : origin(type_.positions));
  }

  // The width of a head, or 0.
  int64_t sizes() {
    const int64_t hidden = size(type_.hidden, "hidden_size", type_.hidden_default);
    const int64_t layers = size(type_.layers, "num_layers", type_.layers_default);
    const int64_t heads = size(type_.heads, "num_heads", type_.heads_default);
    if (!type_.kv_heads.empty()) {
      // transformers reads null as "as many as heads", and no key at all as the class's default.
      const bool null = reader_.is_null(type_.kv_heads);
      const int64_t absent = null || type_.kv_default == 0 ? heads : type_.kv_default;
      const int64_t kv_heads = reader_.whole(type_.kv_heads).value_or(absent);
      set(type_.kv_heads, "num_kv_heads", kv_heads);
      if (kv_heads > 0 && heads % kv_heads != 0) {
        reader_.error(type_.kv_heads, fmt::format("{} ({}) is not divisible by {} ({})",
                                                  type_.heads, heads, type_.kv_heads, kv_heads));
      }
    }
    const auto head_dim = type_.head_dim.empty() ? std::nullopt : reader_.whole(type_.head_dim);
    const bool own_default = type_.head_dim_default > 0 && !reader_.is_null(type_.head_dim);
    int64_t width = 0;
    if (!head_dim && !own_default && hidden % heads != 0) {
      reader_.error(type_.hidden, fmt::format("{} ({}) is not divisible by {} ({})", type_.hidden,
                                              hidden, type_.heads, heads));
    } else {
      width = head_dim.value_or(own_default ? type_.head_dim_default : hidden / heads);
      set(type_.head_dim, "head_dim", width);
    }
    const int64_t ffn_default = type_.ffn_default > 0 ? type_.ffn_default : 4 * hidden;
    set(type_.ffn, "ffn_hidden_size", reader_.whole(type_.ffn).value_or(ffn_default));
    size("vocab_size", "vocab_size", type_.vocab_default);
    const bool tied = reader_.boolean("tie_word_embeddings").value_or(type_.tied_default);
    set_word("tie_word_embeddings", "tied_embeddings", tied ? "true" : "false");
    if (type_.blocks == Blocks::kT5 &&
        reader_.boolean("scale_decoder_outputs").value_or(tied) != tied) {
      reader_.error("scale_decoder_outputs",
                    fmt::format("scale_decoder_outputs is {} and tie_word_embeddings {}, which "
                                "are the same here: transformers 5 writes tie_word_embeddings: "
                                "true for every T5; of a T5 1.1 set it to false",
                                !tied, tied));
    }
    set_word(type_.epsilon, "norm_epsilon",
             fmt::format("{}", reader_.number(type_.epsilon).value_or(type_.epsilon_default)));
    if (type_.blocks != Blocks::kT5) return width;
    set("num_decoder_layers", "decoder_layers",
        reader_.whole("num_decoder_layers").value_or(layers));
    const int64_t buckets = reader_.whole("relative_attention_num_buckets").value_or(32);
    if (buckets != 32) {
      reader_.error(
          "relative_attention_num_buckets",
          fmt::format("relative_attention_num_buckets is {}; only 32 can be counted", buckets));
    }
    return width;
  }

  // gelu (by a tanh), gelu_erf, relu or silu: transformers' activations.py.
  std::string_view kind_of_activation(std::string_view word) {
    for (const std::string_view gelu :
         {"gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate"}) {
      if (word == gelu) return "gelu";
    }
    if (word == "gelu" || word == "gelu_python") return "gelu_erf";
    if (word == "relu") return "relu";
    if (word == "silu" || word == "swish") return "silu";
    return "";
  }

  std::string_view mlp() {
    const bool t5 = type_.blocks == Blocks::kT5;
    const std::string stood =
        reader_.text(type_.activation).value_or(std::string(type_.activation_default));
    std::string_view word = stood;
    const bool gated = t5 ? word.starts_with("gated-") : type_.blocks == Blocks::kLlama;
    if (t5 && gated) word.remove_prefix(6);
    std::string_view kind = kind_of_activation(word);
    if (t5 && gated && word == "gelu") kind = "gelu";  // configuration_t5.py: it means gelu_new
    if (kind == "gelu_erf") {
      set_word(type_.activation, "gelu", "erf");
      kind = "gelu";
    }
    if (gated && kind == "silu") return "swiglu";
    if (gated && kind == "gelu") return "geglu";
    if (!gated && (kind == "gelu" || kind == "relu")) return kind;
    reader_.error(type_.activation, fmt::format("{} {} is not known here: {} is read",
                                                type_.activation, text::quoted_for_message(stood),
                                                t5      ? "relu, gelu, gated-gelu or gated-silu"
                                                : gated ? "silu or a gelu"
                                                        : "a gelu or relu"));
    return "gelu";
  }

  void flag(std::string_view key, std::string_view path, bool value) {
    set_word(key, path, value ? "true" : "false");
  }

  void blocks() {
    const std::string_view activation = mlp();
    const bool llama = type_.blocks == Blocks::kLlama;
    const bool neox = type_.blocks == Blocks::kNeoX;
    const bool phi = type_.blocks == Blocks::kPhi;
    const bool t5 = type_.blocks == Blocks::kT5;
    if (type_.blocks == Blocks::kGpt2) {
      set_word("", "family", "gpt2");
      if (activation != "gelu") set_word(type_.activation, "mlp", activation);
      return;
    }
    const bool attention_bias = reader_.boolean("attention_bias").value_or(neox);
    const bool qwen3 = type_.name == "qwen3" || type_.name == "qwen3_moe";
    const bool has_bias_key = type_.name == "llama" || qwen3 || neox;
    const bool biased = phi || (has_bias_key && attention_bias);
    const bool mlp_bias =
        neox || phi || (type_.name == "llama" && reader_.boolean("mlp_bias").value_or(false));
    set_word("", "family", "transformer");
    if (t5) set_word("", "stack", "encoder_decoder");
    set_word(type_.activation, "mlp", activation);
    set_word("", "norm", llama || t5 ? "rmsnorm" : "layernorm");
    set_word("", "position_embedding", t5 ? "relative" : "rotary");
    // qwen2 always has them; qwen2_moe unless it says otherwise.
    const bool qwen2_moe = type_.name == "qwen2_moe";
    const bool qwen2 =
        type_.name == "qwen2" || (qwen2_moe && reader_.boolean("qkv_bias").value_or(true));
    flag(has_bias_key ? "attention_bias"
         : qwen2_moe  ? "qkv_bias"
                      : "",
         "qkv_bias", biased || qwen2);
    flag(has_bias_key ? "attention_bias" : "", "attention_output_bias", biased);
    flag(type_.name == "llama" ? "mlp_bias" : "", "mlp_bias", mlp_bias);
    flag("", "head_bias", phi);
    flag(phi ? "qk_layernorm" : "", "qk_norm",
         qwen3 || (phi && reader_.boolean("qk_layernorm").value_or(false)));
    flag(neox ? "use_parallel_residual" : "", "parallel_residual",
         phi || (neox && reader_.boolean("use_parallel_residual").value_or(true)));
    flag("", "shared_norm", phi);
  }

  void experts() {
    const bool mixtral = type_.name == "mixtral";
    const bool qwen2 = type_.name == "qwen2_moe";
    if (!mixtral && !qwen2 && type_.name != "qwen3_moe") {
      for (const std::string_view other :
           {"num_local_experts", "num_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
        if (!reader_.has(other)) continue;
        reader_.warn(
            other, fmt::format("{} does nothing: model_type {} has no experts", other, type_.name));
      }
      return;
    }
    // Qwen 3's is called so from transformers 5 on.
    const bool local = !qwen2 && reader_.has("num_local_experts");
    const std::string_view key = local ? "num_local_experts" : "num_experts";
    if (local && reader_.has("num_experts") &&
        reader_.whole("num_experts") != reader_.whole("num_local_experts")) {
      reader_.error("num_experts", "keys disagree: num_experts is not num_local_experts");
    }
    set(key, "num_experts", reader_.whole(key).value_or(mixtral ? 8 : qwen2 ? 60 : 128));
    set("num_experts_per_tok", "experts_per_token",
        reader_.whole("num_experts_per_tok")
            .value_or(mixtral ? 2
                      : qwen2 ? 4
                              : 8));
    if (mixtral) {
      set("intermediate_size", "expert_ffn_hidden_size",
          reader_.whole("intermediate_size").value_or(type_.ffn_default));
      return;
    }
    set("moe_intermediate_size", "expert_ffn_hidden_size",
        reader_.whole("moe_intermediate_size").value_or(qwen2 ? 1408 : 768));
    if (qwen2) {
      set("shared_expert_intermediate_size", "shared_expert_ffn_hidden_size",
          reader_.whole("shared_expert_intermediate_size").value_or(5632));
      set_word("", "shared_expert_gate", "true");
    }
    const int64_t period = reader_.whole("decoder_sparse_step").value_or(1);
    set("decoder_sparse_step", "moe_layer_period", period);
    // Block i has experts where (i + 1) % step = 0: the first of each `step` begin dense.
    if (period > 1) set("decoder_sparse_step", "first_dense_layers", period - 1);
    const text::YamlNode* dense = reader_.node("mlp_only_layers");
    if (dense == nullptr || dense->items.empty()) return;
    for (size_t i = 0; i < dense->items.size(); ++i) {
      if (dense->items[i].text == fmt::format("{}", i) && period == 1) continue;
      reader_.error("mlp_only_layers",
                    "mlp_only_layers can name the first layers alone, as in [0, 1], with "
                    "decoder_sparse_step 1");
      return;
    }
    set("mlp_only_layers", "first_dense_layers", static_cast<int64_t>(dense->items.size()));
  }

  void dropout() {
    const bool gpt2 = type_.blocks == Blocks::kGpt2;
    const bool t5 = type_.blocks == Blocks::kT5;
    const std::string_view attention =
        gpt2 ? "attn_pdrop" : (t5 ? "dropout_rate" : "attention_dropout");
    const std::string_view hidden = gpt2 || type_.blocks == Blocks::kPhi
                                        ? "resid_pdrop"
                                        : (t5 ? "dropout_rate" : "hidden_dropout");
    const double fallback = gpt2 || t5 ? 0.1 : 0.0;
    const double on_attention = reader_.number(attention).value_or(fallback);
    const double on_hidden =
        type_.blocks == Blocks::kLlama ? 0.0 : reader_.number(hidden).value_or(fallback);
    if (on_attention > 0) {
      set_word(attention, "attention_dropout", fmt::format("{}", on_attention));
    }
    if (on_hidden > 0) set_word(hidden, "hidden_dropout", fmt::format("{}", on_hidden));
  }

  // Layers with a window, of all: as layer_types lists them, or from max_window_layers on.
  int64_t windowed_layers(bool by_type, int64_t layers) {
    constexpr int64_t kFirstByDefault = 28;  // Qwen2Config, Qwen3Config
    const int64_t first = reader_.whole("max_window_layers").value_or(kFirstByDefault);
    const text::YamlNode* const kinds = reader_.node("layer_types");
    if (kinds == nullptr) return by_type ? layers : std::clamp<int64_t>(layers - first, 0, layers);
    int64_t windowed = 0;
    for (const text::YamlNode& kind : kinds->items) {
      if (kind.text != "full_attention" && kind.text != "sliding_attention") {
        reader_.error("layer_types", fmt::format("layer_types holds {}, which is not known here",
                                                 text::described(kind)));
        return 0;
      }
      windowed += kind.text == "sliding_attention";
    }
    return windowed;
  }

  void windows() {
    const bool by_type = type_.name == "mistral" || type_.name == "mixtral";
    const bool used = reader_.boolean("use_sliding_window").value_or(false) || by_type;
    auto window = reader_.whole("sliding_window");
    if (window == 0) {  // what transformers 5 writes where there is none
      if (used) {
        reader_.error("sliding_window",
                      "sliding_window must be a whole number of at least 1, not '0'");
      }
      return;
    }
    // MistralConfig has a window where its file says nothing, and none where it says null.
    constexpr int64_t kMistralWindow = 4096;
    if (type_.name == "mistral" && !window && !reader_.is_null("sliding_window") &&
        positions() > kMistralWindow) {
      window = kMistralWindow;
    }
    const int64_t layers = reader_.whole(type_.layers).value_or(type_.layers_default);
    const int64_t windowed = windowed_layers(by_type, layers);
    if (!window || !used || windowed == 0) return;
    set("sliding_window", "sliding_window", *window);
    if (windowed == layers || *window >= positions()) return;
    reader_.error(reader_.has("layer_types")         ? "layer_types"
                  : reader_.has("max_window_layers") ? "max_window_layers"
                                                     : "use_sliding_window",
                  fmt::format("{} of {} layers with a window: a job file has one window for all "
                              "layers; without them say use_sliding_window: false",
                              windowed, layers));
  }

  void dtypes() {
    const auto four = reader_.text("torch_dtype");
    const auto five = reader_.text("dtype");
    if (four && five && *four != *five) {
      reader_.error("dtype",
                    fmt::format("keys disagree: dtype is {}, but torch_dtype is {}", *five, *four));
    } else if (four || five) {
      reader_.note(
          fmt::format("{}: the weights are stored as {}; training.precision is the job's "
                      "to say",
                      four ? "torch_dtype" : "dtype", four ? *four : *five));
    }
  }

  const HuggingFaceType& type_;
  ForeignReader& reader_;
};

std::string type_list() {
  std::string out;
  for (const HuggingFaceType& type : huggingface_types()) {
    if (!out.empty()) out += &type == &huggingface_types().back() ? " and " : ", ";
    out += type.name;
  }
  return out;
}

// The type, or nullptr and a report.
const HuggingFaceType* type_of(const text::YamlNode& root, text::Diagnostics& diagnostics) {
  for (const std::string_view nested :
       {"text_config", "llm_config", "language_config", "thinker_config", "vision_config",
        "audio_config", "encoder", "decoder"}) {
    const text::YamlEntry* entry = root.find(nested);
    if (entry == nullptr || entry->value.kind != text::YamlNode::Kind::kMap) continue;
    diagnostics.error(
        entry->place,
        fmt::format("this model is made of several ({}): only its language model can be planned; "
                    "write the object of its sizes ({}) to a file of its own, and import that",
                    nested, root.find("text_config") ? "text_config" : "often text_config"));
    return nullptr;
  }
  const text::YamlEntry* entry = root.find("model_type");
  if (entry == nullptr) {
    diagnostics.error(root.place,
                      fmt::format("config.json needs model_type: {} are read", type_list()));
    return nullptr;
  }
  for (const HuggingFaceType& type : huggingface_types()) {
    if (entry->value.text == type.name) return &type;
  }
  // No type is suggested: programs write this key, and a name that is nearly another one's (phi3,
  // qwen3_next) is that of another architecture.
  diagnostics.error(
      entry->value.place,
      fmt::format("model_type {} is not read. The types are {}. The sizes of any other can be "
                  "given by hand, as in model: {{family: transformer, num_layers: 32, hidden_size: "
                  "4096, ...}} (docs/job-file.md)",
                  text::described(entry->value), type_list()));
  return nullptr;
}

// transformers 5 can give kinds of layers their own: {"full_attention": {...}, ...}.
void refuse_rope_by_layers(const text::YamlNode& root, text::Diagnostics& diagnostics) {
  for (const std::string_view group : {"rope_parameters", "rope_scaling"}) {
    const text::YamlEntry* entry = root.find(group);
    if (entry == nullptr) continue;
    for (const text::YamlEntry& part : entry->value.entries) {
      if (part.value.kind != text::YamlNode::Kind::kMap) continue;
      diagnostics.error(part.place,
                        fmt::format("{}.{}: a job file has one rotary embedding for all "
                                    "layers",
                                    group, part.key));
    }
  }
}

std::string name_from(const ForeignReader& reader, const HuggingFaceType& type) {
  std::string name = reader.text("_name_or_path").value_or("");
  name = name.substr(name.find_last_of("/\\") + 1);
  const bool plain = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  });
  return plain && !std::isdigit(static_cast<unsigned char>(name[0])) && name[0] != '.' &&
                 name[0] != '-'
             ? name
             : std::string(type.name);
}

}  // namespace

void read_huggingface(const text::YamlNode& root, text::Diagnostics& diagnostics, Imported& out) {
  if (root.kind != text::YamlNode::Kind::kMap) {
    diagnostics.error(root.place,
                      fmt::format("config.json must be a map, not {}", text::described(root)));
    return;
  }
  const HuggingFaceType* type = type_of(root, diagnostics);
  if (type == nullptr) return;
  refuse_rope_by_layers(root, diagnostics);
  text::YamlNode known = root;
  std::erase_if(known.entries, [](const text::YamlEntry& entry) {
    return std::ranges::count(huggingface_words(), entry.key) > 0;
  });
  ForeignReader reader(huggingface_keys(), diagnostics, out);
  reader.read(known, "", UnknownKeys::kWarning);
  reader.set("model.name", name_from(reader, *type),
             reader.has("_name_or_path") ? "_name_or_path" : "model_type");
  HuggingFaceModel(*type, reader).read();
  reader.copy_all();
  if (const text::YamlNode* list = reader.node("architectures")) {
    for (const text::YamlNode& item : list->items) {
      const std::string& name = item.text;
      if (name.find("CausalLM") != std::string::npos || name.find("LMHead") != std::string::npos ||
          name.find("ConditionalGeneration") != std::string::npos) {
        continue;
      }
      reader.warn("architectures",
                  fmt::format("architectures has {}: what is planned is the language model with "
                              "its head",
                              text::described(item)));
    }
  }
}

}  // namespace smp::importers
