#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "huggingface/huggingface_types.h"
#include "importers/foreign_keys.h"
#include "importers/huggingface_experts.h"
#include "importers/huggingface_gpt_oss.h"
#include "importers/huggingface_reader.h"
#include "importers/huggingface_rope.h"
#include "importers/huggingface_windows.h"
#include "smp/plan/model/parameter_counts.h"

// A Hugging Face config.json as the model section of a job file.
namespace smp::importers {
namespace {

using Blocks = huggingface::HuggingFaceBlocks;
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
        reader_(reader),
        model_{type, reader} {}

  void read() {
    refuse_names_of_others();
    refuse_nulls();
    blocks();
    const int64_t head_dim = sizes();
    const bool rotary = type_.blocks != Blocks::kGpt2 && type_.blocks != Blocks::kT5;
    set_positions(rotary ? read_huggingface_rope(model_, head_dim) : 0);
    read_huggingface_experts(model_);
    if (type_.model_class == huggingface::HuggingFaceClass::kGptOss) read_gpt_oss(model_);
    latent_attention();
    dropout();
    read_huggingface_windows(model_);
    dtypes();
  }

 private:
  void refuse_names_of_others() {
    for (const auto size : kSizes) {
      for (const HuggingFaceType& other : huggingface_types()) {
        const std::string_view key = other.keys.*size;
        if (key.empty() || key == keys_.*size || !reader_.has(key)) continue;
        if (is_own(key) || (key == "head_dim" && type_.latent.kv_rank > 0)) continue;
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
    model_.set(key, path, value);
    if (!reader_.has(key) && reader_.usable(key)) {
      reader_.note(fmt::format("{} is absent; {}'s default is {}", key, type_.name, fallback));
    }
    return value;
  }

  // `scaled`: what scaled rotary frequencies reach, or 0.
  void set_positions(int64_t scaled) {
    const int64_t value = scaled > 0 ? scaled : model_.positions();
    if (value == 0) return;
    reader_.set("model.max_positions", fmt::format("{}", value),
                scaled > 0 ? "original positions x factor of the rope scaling"
                           : model_.origin(keys_.positions));
  }

  // 0: there is none. With latent attention it follows from other keys.
  int64_t head_width(int64_t hidden, int64_t heads) {
    if (type_.latent.kv_rank > 0) return 0;
    const auto head_dim = keys_.head_dim.empty() ? std::nullopt : reader_.whole(keys_.head_dim);
    const bool own_default = sizes_.head_dim > 0 && !reader_.is_null(keys_.head_dim);
    if (!head_dim && !own_default && hidden % heads != 0) {
      reader_.error(keys_.hidden, fmt::format("{} ({}) is not divisible by {} ({})", keys_.hidden,
                                              hidden, keys_.heads, heads));
      return 0;
    }
    const int64_t width = head_dim.value_or(own_default ? sizes_.head_dim : hidden / heads);
    model_.set(keys_.head_dim, "head_dim", width);
    return width;
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
      model_.set(keys_.kv_heads, "num_kv_heads", kv_heads);
      if (kv_heads > 0 && heads % kv_heads != 0) {
        reader_.error(keys_.kv_heads, fmt::format("{} ({}) is not divisible by {} ({})",
                                                  keys_.heads, heads, keys_.kv_heads, kv_heads));
      } else if (type_.latent.kv_rank > 0 && kv_heads != heads) {
        reader_.error(keys_.kv_heads,
                      fmt::format("{} ({}) must equal {} ({}): latent attention makes keys for "
                                  "every head",
                                  keys_.kv_heads, kv_heads, keys_.heads, heads));
      }
    }
    const int64_t width = head_width(hidden, heads);
    const int64_t ffn_default = sizes_.ffn > 0 ? sizes_.ffn : 4 * hidden;
    model_.set(keys_.ffn, "ffn_hidden_size", reader_.whole(keys_.ffn).value_or(ffn_default));
    size("vocab_size", "vocab_size", sizes_.vocab);
    const bool tied = reader_.boolean("tie_word_embeddings").value_or(defaults_.tied);
    model_.set_word("tie_word_embeddings", "tied_embeddings", tied ? "true" : "false");
    if (type_.blocks == Blocks::kT5 &&
        reader_.boolean("scale_decoder_outputs").value_or(tied) != tied) {
      reader_.error(
          "scale_decoder_outputs",
          fmt::format("scale_decoder_outputs is {}, but tie_word_embeddings is {}; smp requires "
                      "them to be equal. transformers 5 writes tie_word_embeddings: true for every "
                      "T5; set it to false for a T5 1.1",
                      !tied, tied));
    }
    model_.set_word(keys_.epsilon, "norm_epsilon",
                    fmt::format("{}", reader_.number(keys_.epsilon).value_or(defaults_.epsilon)));
    if (type_.blocks != Blocks::kT5) return width;
    model_.set("num_decoder_layers", "decoder_layers",
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

  // Multi-head latent attention. Its head_dim is that of what rotates, and follows.
  void latent_attention() {
    const huggingface::HuggingFaceLatent& latent = type_.latent;
    if (latent.kv_rank == 0) return;
    const auto width = [&](std::string_view key, std::string_view path, int64_t fallback) {
      model_.set(key, path, reader_.whole(key).value_or(fallback));
    };
    width("kv_lora_rank", "kv_lora_rank", latent.kv_rank);
    if (!reader_.is_null("q_lora_rank")) width("q_lora_rank", "q_lora_rank", latent.q_rank);
    width("qk_nope_head_dim", "qk_head_dim", latent.plain);
    width("qk_rope_head_dim", "qk_rope_head_dim", latent.rotary);
    width("v_head_dim", "v_head_dim", latent.value);
    if (reader_.boolean("attention_bias").value_or(false)) {
      reader_.error("attention_bias",
                    "attention_bias: true is not supported with latent attention");
    }
    if (!reader_.boolean("rope_interleave").value_or(true)) {
      reader_.error("rope_interleave",
                    "rope_interleave: false is not supported: latent attention pairs neighbours");
    }
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
      model_.set_word(keys_.activation, "gelu", "erf");
    }
    if (kind == "quick_gelu" && !t5) model_.set_word(keys_.activation, "gelu", "sigmoid");
    if (kind == "gelu_new" || (kind == "quick_gelu" && !t5)) kind = "gelu";
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
    model_.set_word(key, path, value ? "true" : "false");
  }

  // An attribute of the blocks, under `key` or, without such a key, as the class has it.
  void attribute(std::string_view key, std::string_view path, bool fallback) {
    flag(key, path, key.empty() ? fallback : reader_.boolean(key).value_or(fallback));
  }

  void blocks() {
    const bool gpt_oss = type_.model_class == huggingface::HuggingFaceClass::kGptOss;
    const std::string_view activation = gpt_oss ? kGptOssMlp : mlp();
    const bool t5 = type_.blocks == Blocks::kT5;
    if (type_.blocks == Blocks::kGpt2) {
      model_.set_word("", "family", "gpt2");
      if (activation != "gelu") model_.set_word(keys_.activation, "mlp", activation);
      return;
    }
    model_.set_word("", "family", "transformer");
    if (t5) model_.set_word("", "stack", "encoder_decoder");
    model_.set_word(gpt_oss ? "" : keys_.activation, "mlp", activation);
    model_.set_word("", "norm", type_.blocks == Blocks::kLlama || t5 ? "rmsnorm" : "layernorm");
    model_.set_word("", "position_embedding", t5 ? "relative" : "rotary");
    attribute(keys_.qkv_bias, "qkv_bias", defaults_.qkv_bias);
    attribute(keys_.output_bias, "attention_output_bias", defaults_.output_bias);
    attribute(keys_.mlp_bias, "mlp_bias", defaults_.mlp_bias);
    flag("", "head_bias", type_.blocks == Blocks::kPhi);
    attribute(keys_.qk_norm, "qk_norm", defaults_.qk_norm);
    if (defaults_.norms_over_all_heads) model_.set_word("", "qk_norm_over", "all_heads");
    attribute(keys_.parallel_residual, "parallel_residual", defaults_.parallel_residual);
    flag("", "shared_norm", type_.blocks == Blocks::kPhi);
  }

  void dropout() {
    const auto share = [&](std::string_view key) {
      return key.empty() ? 0.0 : reader_.number(key).value_or(defaults_.dropout);
    };
    const double on_attention = share(keys_.attention_dropout);
    const double on_hidden = share(keys_.hidden_dropout);
    if (on_attention > 0) {
      model_.set_word(keys_.attention_dropout, "attention_dropout",
                      fmt::format("{}", on_attention));
    }
    if (on_hidden > 0) {
      model_.set_word(keys_.hidden_dropout, "hidden_dropout", fmt::format("{}", on_hidden));
    }
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
  HuggingFaceReader model_;
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
