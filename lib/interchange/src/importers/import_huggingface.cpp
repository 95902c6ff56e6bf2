#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "huggingface/huggingface_types.h"
#include "importers/foreign_keys.h"
#include "importers/huggingface_rope.h"
#include "smp/plan/model/parameter_counts.h"

// A Hugging Face config.json as the model section of a job file.
namespace smp::importers {
namespace {

using Blocks = huggingface::HuggingFaceBlocks;
using Class = huggingface::HuggingFaceClass;
using Keys = huggingface::HuggingFaceKeys;
using huggingface::huggingface_types;
using huggingface::HuggingFaceType;

// Names for one size: a file that uses another type's name would be read with a default instead.
constexpr std::array kSizes = {&Keys::hidden,   &Keys::layers, &Keys::heads,   &Keys::kv_heads,
                               &Keys::head_dim, &Keys::ffn,    &Keys::epsilon, &Keys::activation};

class HuggingFaceModel {
 public:
  HuggingFaceModel(const HuggingFaceType& type, ForeignReader& reader)
      : type_(type),
        keys_(type.keys),
        sizes_(type.sizes),
        defaults_(type.defaults),
        reader_(reader) {}

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
    if (!reader_.has(key)) return fmt::format("{}, default of {}", key, type_.name);
    return std::string(key);
  }

  void refuse_names_of_others() {
    for (const auto size : kSizes) {
      for (const HuggingFaceType& other : huggingface_types()) {
        const std::string_view key = other.keys.*size;
        if (key.empty() || key == keys_.*size || !reader_.has(key)) continue;
        if (is_own(key)) continue;
        reader_.error(key, keys_.*size == "" ? fmt::format("{} is a key of {}; {} has no such key",
                                                           key, other.name, type_.name)
                                             : fmt::format("{} is a key of {}; {} calls it {}", key,
                                                           other.name, type_.name, keys_.*size));
        break;
      }
    }
  }
  // transformers takes a default for a key that is absent, and None for null: of these sizes none
  // may be None. (KV heads, the width of a head, GPT-2's n_inner and T5's decoder layers may.)
  void refuse_nulls() {
    for (const std::string_view key :
         {keys_.hidden, keys_.layers, keys_.heads, keys_.epsilon, std::string_view("vocab_size")}) {
      reader_.refuse_null(key);
    }
    if (sizes_.ffn > 0) reader_.refuse_null(keys_.ffn);
  }
  bool is_own(std::string_view key) const {
    return std::ranges::any_of(kSizes, [&](const auto size) { return keys_.*size == key; });
  }

  int64_t size(std::string_view key, std::string_view path, int64_t fallback) {
    const int64_t value = reader_.whole(key).value_or(fallback);
    set(key, path, value);
    if (!reader_.has(key) && reader_.usable(key)) {
      reader_.note(fmt::format("{} is absent; {}'s default is {}", key, type_.name, fallback));
    }
    return value;
  }

  int64_t positions() const { return reader_.whole(keys_.positions).value_or(sizes_.positions); }
  // `scaled`: what scaled rotary frequencies reach, or 0.
  void set_positions(int64_t scaled) {
    const int64_t value = scaled > 0 ? scaled : positions();
    if (value == 0) return;
    reader_.set(
        "model.max_positions", fmt::format("{}", value),
        scaled > 0 ? "original positions x factor of the rope scaling" : origin(keys_.positions));
  }

  // The width of a head, or 0.
  int64_t sizes() {
    const int64_t hidden = size(keys_.hidden, "hidden_size", sizes_.hidden);
    const int64_t layers = size(keys_.layers, "num_layers", sizes_.layers);
    const int64_t heads = size(keys_.heads, "num_heads", sizes_.heads);
    if (!keys_.kv_heads.empty()) {
      // transformers reads null as "as many as heads", and no key at all as the class's default.
      const bool null = reader_.is_null(keys_.kv_heads);
      const int64_t absent = null || sizes_.kv_heads == 0 ? heads : sizes_.kv_heads;
      const int64_t kv_heads = reader_.whole(keys_.kv_heads).value_or(absent);
      set(keys_.kv_heads, "num_kv_heads", kv_heads);
      if (kv_heads > 0 && heads % kv_heads != 0) {
        reader_.error(keys_.kv_heads, fmt::format("{} ({}) is not divisible by {} ({})",
                                                  keys_.heads, heads, keys_.kv_heads, kv_heads));
      }
    }
    const auto head_dim = keys_.head_dim.empty() ? std::nullopt : reader_.whole(keys_.head_dim);
    const bool own_default = sizes_.head_dim > 0 && !reader_.is_null(keys_.head_dim);
    int64_t width = 0;
    if (!head_dim && !own_default && hidden % heads != 0) {
      reader_.error(keys_.hidden, fmt::format("{} ({}) is not divisible by {} ({})", keys_.hidden,
                                              hidden, keys_.heads, heads));
    } else {
      width = head_dim.value_or(own_default ? sizes_.head_dim : hidden / heads);
      set(keys_.head_dim, "head_dim", width);
    }
    const int64_t ffn_default = sizes_.ffn > 0 ? sizes_.ffn : 4 * hidden;
    set(keys_.ffn, "ffn_hidden_size", reader_.whole(keys_.ffn).value_or(ffn_default));
    size("vocab_size", "vocab_size", sizes_.vocab);
    const bool tied = reader_.boolean("tie_word_embeddings").value_or(defaults_.tied);
    set_word("tie_word_embeddings", "tied_embeddings", tied ? "true" : "false");
    if (type_.blocks == Blocks::kT5 &&
        reader_.boolean("scale_decoder_outputs").value_or(tied) != tied) {
      reader_.error(
          "scale_decoder_outputs",
          fmt::format("scale_decoder_outputs is {}, but tie_word_embeddings is {}; smp requires "
                      "them to be equal. transformers 5 writes tie_word_embeddings: true for every "
                      "T5; set it to false for a T5 1.1",
                      !tied, tied));
    }
    set_word(keys_.epsilon, "norm_epsilon",
             fmt::format("{}", reader_.number(keys_.epsilon).value_or(defaults_.epsilon)));
    if (type_.blocks != Blocks::kT5) return width;
    set("num_decoder_layers", "decoder_layers",
        reader_.whole("num_decoder_layers").value_or(layers));
    const int64_t buckets =
        reader_.whole("relative_attention_num_buckets").value_or(model::kRelativeBuckets);
    if (buckets != model::kRelativeBuckets) {
      reader_.error("relative_attention_num_buckets",
                    fmt::format("relative_attention_num_buckets is {}; smp supports only {}",
                                buckets, model::kRelativeBuckets));
    }
    return width;
  }

  std::string_view mlp() {
    const bool t5 = type_.blocks == Blocks::kT5;
    const std::string stood =
        reader_.text(keys_.activation).value_or(std::string(defaults_.activation));
    std::string_view word = stood;
    const bool gated = t5 ? word.starts_with("gated-") : type_.blocks == Blocks::kLlama;
    if (t5 && gated) word.remove_prefix(6);
    std::string_view kind = huggingface::activation_of(word);
    if (kind == "gelu" &&
        !(t5 && gated)) {  // of a gated T5 it means gelu_new (configuration_t5.py)
      set_word(keys_.activation, "gelu", "erf");
    }
    if (kind == "gelu_new") kind = "gelu";
    if (gated && kind == "silu") return "swiglu";
    if (gated && kind == "gelu") return "geglu";
    if (!gated && kind == "gelu") return "gelu";
    if (!gated && kind == "relu") return "relu";
    reader_.error(keys_.activation, fmt::format("{} {} is not supported; expected {}",
                                                keys_.activation, text::quoted_for_message(stood),
                                                t5      ? "relu, gelu, gated-gelu or gated-silu"
                                                : gated ? "silu or a gelu"
                                                        : "a gelu or relu"));
    return "gelu";
  }

  void flag(std::string_view key, std::string_view path, bool value) {
    set_word(key, path, value ? "true" : "false");
  }

  // An attribute of the blocks, under `key` or, without such a key, as the class has it.
  void attribute(std::string_view key, std::string_view path, bool fallback) {
    flag(key, path, key.empty() ? fallback : reader_.boolean(key).value_or(fallback));
  }

  void blocks() {
    const std::string_view activation = mlp();
    const bool t5 = type_.blocks == Blocks::kT5;
    if (type_.blocks == Blocks::kGpt2) {
      set_word("", "family", "gpt2");
      if (activation != "gelu") set_word(keys_.activation, "mlp", activation);
      return;
    }
    set_word("", "family", "transformer");
    if (t5) set_word("", "stack", "encoder_decoder");
    set_word(keys_.activation, "mlp", activation);
    set_word("", "norm", type_.blocks == Blocks::kLlama || t5 ? "rmsnorm" : "layernorm");
    set_word("", "position_embedding", t5 ? "relative" : "rotary");
    attribute(keys_.qkv_bias, "qkv_bias", defaults_.qkv_bias);
    attribute(keys_.output_bias, "attention_output_bias", defaults_.output_bias);
    attribute(keys_.mlp_bias, "mlp_bias", defaults_.mlp_bias);
    flag("", "head_bias", type_.blocks == Blocks::kPhi);
    attribute(keys_.qk_norm, "qk_norm", defaults_.qk_norm);
    attribute(keys_.parallel_residual, "parallel_residual", defaults_.parallel_residual);
    flag("", "shared_norm", type_.blocks == Blocks::kPhi);
  }

  void experts() {
    const huggingface::HuggingFaceExperts& experts = type_.experts;
    const bool qwen2 = type_.model_class == Class::kQwen2Moe;
    if (experts.num == 0) {
      for (const std::string_view other :
           {"num_local_experts", "num_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
        if (!reader_.has(other)) continue;
        reader_.warn(other, fmt::format("{} has no effect: model_type {} has no experts", other,
                                        type_.name));
      }
      return;
    }
    // transformers 5 calls Qwen 3's key so.
    const bool local = !qwen2 && reader_.has("num_local_experts");
    const std::string_view key = local ? "num_local_experts" : "num_experts";
    if (local && reader_.has("num_experts") &&
        reader_.whole("num_experts") != reader_.whole("num_local_experts")) {
      reader_.error("num_experts", "keys disagree: num_experts differs from num_local_experts");
    }
    set(key, "num_experts", reader_.whole(key).value_or(experts.num));
    set("num_experts_per_tok", "experts_per_token",
        reader_.whole("num_experts_per_tok").value_or(experts.per_token));
    if (experts.ffn == 0) {
      set(keys_.ffn, "expert_ffn_hidden_size", reader_.whole(keys_.ffn).value_or(sizes_.ffn));
      return;
    }
    set("moe_intermediate_size", "expert_ffn_hidden_size",
        reader_.whole("moe_intermediate_size").value_or(experts.ffn));
    if (experts.shared_ffn > 0) {
      set("shared_expert_intermediate_size", "shared_expert_ffn_hidden_size",
          reader_.whole("shared_expert_intermediate_size").value_or(experts.shared_ffn));
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
      reader_.error(
          "mlp_only_layers",
          "mlp_only_layers must list the first layers, as in [0, 1], with decoder_sparse_step 1");
      return;
    }
    set("mlp_only_layers", "first_dense_layers", static_cast<int64_t>(dense->items.size()));
  }

  void dropout() {
    const auto share = [&](std::string_view key) {
      return key.empty() ? 0.0 : reader_.number(key).value_or(defaults_.dropout);
    };
    const double on_attention = share(keys_.attention_dropout);
    const double on_hidden = share(keys_.hidden_dropout);
    if (on_attention > 0) {
      set_word(keys_.attention_dropout, "attention_dropout", fmt::format("{}", on_attention));
    }
    if (on_hidden > 0) {
      set_word(keys_.hidden_dropout, "hidden_dropout", fmt::format("{}", on_hidden));
    }
  }

  // How many layers have a window: those that layer_types lists, or those from max_window_layers
  // on.
  int64_t windowed_layers(bool by_type, int64_t layers) {
    constexpr int64_t kFirstByDefault = 28;  // Qwen2Config, Qwen3Config
    const int64_t first = reader_.whole("max_window_layers").value_or(kFirstByDefault);
    const text::YamlNode* const kinds = reader_.node("layer_types");
    if (kinds == nullptr) return by_type ? layers : std::clamp<int64_t>(layers - first, 0, layers);
    int64_t windowed = 0;
    for (const text::YamlNode& kind : kinds->items) {
      if (kind.text != "full_attention" && kind.text != "sliding_attention") {
        reader_.error(
            "layer_types",
            fmt::format("layer_types has {}; expected full_attention or sliding_attention",
                        text::described(kind)));
        return 0;
      }
      windowed += kind.text == "sliding_attention";
    }
    return windowed;
  }

  void windows() {
    const bool by_type = defaults_.window_in_all_layers;
    const bool used = reader_.boolean("use_sliding_window").value_or(false) || by_type;
    auto window = reader_.whole("sliding_window");
    if (window == 0) {  // what transformers 5 writes where there is none
      if (used) {
        reader_.error("sliding_window",
                      "sliding_window must be a whole number of at least 1, not '0'");
      }
      return;
    }
    // MistralConfig has a window if the key is absent, and none if it is null.
    if (defaults_.window > 0 && !window && !reader_.is_null("sliding_window") &&
        positions() > defaults_.window) {
      window = defaults_.window;
    }
    const int64_t layers = reader_.whole(keys_.layers).value_or(sizes_.layers);
    const int64_t windowed = windowed_layers(by_type, layers);
    if (!window || !used || windowed == 0) return;
    set("sliding_window", "sliding_window", *window);
    if (windowed == layers || *window >= positions()) return;
    reader_.error(reader_.has("layer_types")         ? "layer_types"
                  : reader_.has("max_window_layers") ? "max_window_layers"
                                                     : "use_sliding_window",
                  fmt::format("{} of {} layers have a window, but in smp all layers have one, or "
                              "none: to remove the windows, set use_sliding_window: false",
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
          fmt::format("{}: the weights are stored as {}; set training.precision in the job file",
                      four ? "torch_dtype" : "dtype", four ? *four : *five));
    }
  }

  const HuggingFaceType& type_;
  const Keys& keys_;
  const huggingface::HuggingFaceSizes& sizes_;
  const huggingface::HuggingFaceDefaults& defaults_;
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
        fmt::format("the model has several parts ({}), and smp plans only its language model: "
                    "write the object with its sizes ({}) to a separate file, and import that file",
                    nested, root.find("text_config") ? "text_config" : "often text_config"));
    return nullptr;
  }
  const text::YamlEntry* entry = root.find("model_type");
  if (entry == nullptr) {
    diagnostics.error(root.place,
                      fmt::format("config.json has no model_type; supported are {}", type_list()));
    return nullptr;
  }
  for (const HuggingFaceType& type : huggingface_types()) {
    if (entry->value.text == type.name) return &type;
  }
  // No type is suggested: programs write this key, and a name that is nearly another one's (phi3,
  // qwen3_next) is that of another architecture.
  diagnostics.error(
      entry->value.place,
      fmt::format("model_type {} is not supported; supported are {}. Write the sizes of other "
                  "types in the job file, as in model: {{family: transformer, num_layers: 32, "
                  "hidden_size: 4096, ...}} (docs/job-file.md)",
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
      diagnostics.error(
          part.place, fmt::format("{}.{}: rotary embeddings that differ by layer are not supported",
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
                  fmt::format("architectures has {}; smp plans the language model with its head",
                              text::described(item)));
    }
  }
}

}  // namespace smp::importers
