#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "huggingface/huggingface_types.h"
#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/json_depth.h"

// Compares a foreign config.json with the one that we would write for the model. Every key that
// decides what the model computes must have the same value, or be absent with the same default.
namespace smp::huggingface {
namespace {

// Keys that may differ: they say how weights were drawn, stored, trained or sampled from.
constexpr std::array kCosmetic = {
    "architectures", "initializer_range", "resid_pdrop",  "embd_pdrop",
    "attn_pdrop",    "bos_token_id",      "eos_token_id", "dropout_rate",
    "pad_token_id",  "torch_dtype",       "dtype"};
// Keys that are compared together, by their joint meaning.
constexpr std::array kTogether = {"model_type",
                                  "rope_theta",
                                  "rope_scaling",
                                  "rope_parameters",
                                  "partial_rotary_factor",
                                  "sliding_window",
                                  "use_sliding_window"};

template <size_t n>
bool is_among(const std::array<const char*, n>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Numbers of yarn that transformers has a value for where they are absent; 0 stands for None.
void fill_yarn(text::OrderedJson& rope) {
  const text::OrderedJson defaults = {{"beta_fast", 32},       {"beta_slow", 1},
                                      {"attention_factor", 0}, {"mscale", 0},
                                      {"mscale_all_dim", 0},   {"truncate", true}};
  for (const auto& [key, value] : defaults.items()) {
    if (!rope.contains(key)) rope[key] = value;
  }
}

class ConfigCheck {
 public:
  ConfigCheck(const std::string& path, const text::OrderedJson& theirs, const ModelSpec& model)
      : path_(path), theirs_(theirs), model_(model) {}

  void run() {
    const text::OrderedJson ours =
        text::OrderedJson::parse(huggingface_config(model_, DType::kF32));
    check_type(ours.at("model_type").get<std::string>());
    type_ = type_named(theirs_.at("model_type").get<std::string>());
    defaults_ = defaults_of(*type_);
    for (const auto& [key, value] : ours.items()) {
      if (is_among(kCosmetic, key) || is_among(kTogether, key)) continue;
      const text::OrderedJson found = value_of(key);
      if (key == "max_position_embeddings" && reaches(found, value)) continue;
      if (!fits(key, found, value)) {
        refuse(
            fmt::format("{} is {}, but this job's model has {}", key, found.dump(), value.dump()));
      }
    }
    if (model_.position_embedding == PositionKind::kRotary) check_rope(ours.at("rope_parameters"));
    check_window();
  }

 private:
  [[noreturn]] void refuse(const std::string& text) const {
    throw ConfigError(fmt::format("{}: {}", path_, text));
  }

  bool has(const char* key) const { return theirs_.contains(key) && !theirs_.at(key).is_null(); }

  // Mistral without its window is Llama.
  void check_type(const std::string& ours) const {
    const text::OrderedJson found =
        has("model_type") ? theirs_.at("model_type") : text::OrderedJson();
    if (found == ours || (found == "mistral" && ours == "llama")) return;
    if (!has("model_type")) refuse("'model_type' is missing");
    refuse(fmt::format("model_type is {}, but this job's model has \"{}\"", found.dump(), ours));
  }

  static bool fits(const std::string& key, const text::OrderedJson& found,
                   const text::OrderedJson& value) {
    // Rotary positions have no table, so the job may use fewer.
    if (key == "max_position_embeddings" && found.is_number()) return found >= value;
    if ((key == "hidden_act" || key == "activation_function") && found.is_string()) {
      return activation_of(found.get<std::string>()) == value.get<std::string>();
    }
    return found == value;
  }

  // Yarn's factor times the original positions, which some files give in place of what they reach.
  bool reaches(const text::OrderedJson& found, const text::OrderedJson& positions) const {
    return model_.rope_scaling == RopeScaling::kYarn && found.is_number() &&
           positions.get<double>() <=
               model_.rope_scaling_factor * static_cast<double>(model_.rope_original_positions);
  }

  // Sizes that transformers reads as None where the file has null. KV heads, the width of a head
  // and an MLP of 4 x hidden then follow from other sizes.
  bool is_size(std::string_view key) const {
    const HuggingFaceKeys& keys = type_->keys;
    return key == keys.hidden || key == keys.layers || key == keys.heads || key == keys.ffn ||
           key == keys.kv_heads || key == keys.head_dim || key == "vocab_size";
  }

  text::OrderedJson value_of(const std::string& key) const {
    // transformers 5 calls Qwen 3's key num_local_experts.
    if (key == "num_experts" && !has("num_experts") && has("num_local_experts")) {
      return theirs_.at("num_local_experts");
    }
    if (has(key.c_str())) return theirs_.at(key);
    // Without a latent of the queries.
    if (key == "q_lora_rank" && theirs_.contains(key)) return theirs_.at(key);
    const bool is_null = theirs_.contains(key);
    if (defaults_.contains(key) && !(is_null && is_size(key))) return defaults_.at(key);
    const HuggingFaceKeys& keys = type_->keys;
    if (key == keys.ffn && type_->sizes.ffn == 0) return 4 * size(keys.hidden);
    if (key == keys.kv_heads) return size(keys.heads);
    if (key == keys.head_dim && type_->blocks != HuggingFaceBlocks::kT5) {
      return size(keys.hidden) / std::max<int64_t>(1, size(keys.heads));
    }
    if (key == "num_decoder_layers") return size(keys.layers);
    if (key == "layer_types") {
      return layer_types_of(size(keys.layers), type_->defaults.full_attention_period);
    }
    refuse(fmt::format("'{}' is missing", key));
  }

  int64_t size(std::string_view key) const {
    const text::OrderedJson found = value_of(std::string(key));
    if (!found.is_number_integer()) {
      refuse(fmt::format("{} is {}, not a whole number", key, found.dump()));
    }
    return found.get<int64_t>();
  }

  // Their rotary embedding as one object, under the names of transformers 5. A value
  // that stands in several places must be the same in all.
  text::OrderedJson their_rope() const {
    text::OrderedJson rope = text::OrderedJson::object();
    std::map<std::string, std::string> places;
    const auto say = [&](std::string key, const std::string& place,
                         const text::OrderedJson& value) {
      if (key == "type") key = "rope_type";
      const auto [first, is_new] = places.try_emplace(key, place);
      if (!is_new && rope.at(key) != value) {
        refuse(fmt::format("keys disagree: {} is {}, but {} is {}", first->second,
                           rope.at(key).dump(), place, value.dump()));
      }
      rope[key] = value;
    };
    for (const char* group : {"rope_scaling", "rope_parameters"}) {
      if (!has(group)) continue;
      if (!theirs_.at(group).is_object())
        refuse(fmt::format("{} is {}", group, theirs_.at(group).dump()));
      for (const auto& [key, value] : theirs_.at(group).items()) {
        say(key, fmt::format("{}.{}", group, key), value);
      }
    }
    if (!rope.contains("rope_type")) {
      // Without the key it is a yarn of the class's own.
      if (type_->model_class == HuggingFaceClass::kGptOss && !theirs_.contains("rope_scaling")) {
        refuse("'rope_scaling' is missing");
      }
      rope["rope_type"] = "default";
    }
    for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
      if (has(key)) say(key, key, theirs_.at(key));
    }
    if (!rope.contains("rope_theta")) rope["rope_theta"] = type_->defaults.rope_theta;
    if (!rope.contains("partial_rotary_factor")) {
      rope["partial_rotary_factor"] = type_->defaults.rotary_share;
    }
    if (rope.at("rope_type") == "yarn") {
      fill_yarn(rope);
      if (!rope.contains("original_max_position_embeddings") && has("max_position_embeddings")) {
        rope["original_max_position_embeddings"] = theirs_.at("max_position_embeddings");
      }
    }
    if (rope.at("rope_type") == "longrope") fill_longrope(rope);
    return rope;
  }

  // transformers' own: the factor is how far positions reach, and the attention factor follows.
  void fill_longrope(text::OrderedJson& rope) const {
    constexpr const char* kOriginal = "original_max_position_embeddings";
    if (has(kOriginal)) rope[kOriginal] = theirs_.at(kOriginal);
    if (!rope.contains(kOriginal) || !has("max_position_embeddings")) return;
    if (!rope.at(kOriginal).is_number() || !theirs_.at("max_position_embeddings").is_number())
      return;
    rope["factor"] =
        theirs_.at("max_position_embeddings").get<double>() / rope.at(kOriginal).get<double>();
    if (rope.contains("attention_factor")) return;
    ModelSpec model = model_;
    model.rope_attention_factor = 0;
    rope["attention_factor"] = model::rope_attention_factor(model);
  }

  void check_rope(const text::OrderedJson& ours) const {
    const text::OrderedJson rope = their_rope();
    text::OrderedJson wanted = ours;
    if (wanted.at("rope_type") == "yarn") fill_yarn(wanted);
    for (const auto& [key, value] : wanted.items()) {
      if (key == "partial_rotary_factor") continue;
      const text::OrderedJson found = rope.value(key, text::OrderedJson());
      if (found == value) continue;
      refuse(fmt::format("{} of the rotary embedding is {}, but this job's model has {}", key,
                         found.dump(), value.dump()));
    }
    const text::OrderedJson factor = rope.at("partial_rotary_factor");
    const double turned =
        factor.is_number() ? factor.get<double>() * static_cast<double>(model_.head_dim) : -1;
    const auto dim = static_cast<double>(rotary_dim_of(model_));
    if (turned >= dim && turned < dim + 1) return;
    refuse(
        fmt::format("partial_rotary_factor is {}, but this job's model rotates {} of a head's {} "
                    "elements (model.rotary_dim)",
                    factor.dump(), rotary_dim_of(model_), model_.head_dim));
  }

  // A window that no sequence exceeds equals no window.
  void check_window() const {
    const bool used = type_->defaults.window_in_all_layers ||
                      (has("use_sliding_window") && theirs_.at("use_sliding_window") != false);
    text::OrderedJson window;
    if (used && has("sliding_window")) window = theirs_.at("sliding_window");
    if (type_->defaults.window > 0 && !theirs_.contains("sliding_window")) {
      window = type_->defaults.window;
    }
    if (window == model_.sliding_window || (window.is_null() && model_.sliding_window == 0)) return;
    if (model_.sliding_window == 0 && window.is_number() && window >= model_.max_positions) return;
    refuse(
        fmt::format("sliding_window is {}, but this job's model has {} (0 = none; a window of at "
                    "least model.max_positions = none)",
                    window.dump(), model_.sliding_window));
  }

  const std::string& path_;
  const text::OrderedJson& theirs_;
  const ModelSpec& model_;
  const HuggingFaceType* type_ = nullptr;  // the row of their model_type
  text::OrderedJson defaults_;             // of that type
};

}  // namespace

void check_huggingface_config(const std::string& path, const std::string& text,
                              const ModelSpec& model) {
  if (text::nests_too_deep(text)) {
    throw ConfigError(
        fmt::format("{}: nests more than {} levels deep", path, text::kMostJsonLevels));
  }
  const text::OrderedJson json = text::OrderedJson::parse(text, nullptr, false);
  if (!json.is_object()) throw ConfigError(fmt::format("{}: expected a JSON object", path));
  ConfigCheck(path, json, model).run();
}

}  // namespace smp::huggingface
