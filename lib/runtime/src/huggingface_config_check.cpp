#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "smp/plan/errors.h"
#include "smp/runtime/huggingface_weights.h"

// A foreign config.json against the one that we would write of the model: every key that decides
// what the model computes must say the same, or be absent where its default does.
namespace smp {
namespace {

using Json = nlohmann::ordered_json;

// Keys of ours that another file may set as it likes: they say how weights were drawn, stored,
// trained or sampled from.
constexpr std::array kCosmetic = {
    "architectures", "initializer_range", "resid_pdrop",  "embd_pdrop",
    "attn_pdrop",    "bos_token_id",      "eos_token_id", "dropout_rate",
    "pad_token_id",  "torch_dtype",       "dtype",        "rope_parameters"};

// transformers' configuration_gpt2.py and configuration_llama.py, where a key is absent.
const Json& defaults_of(const std::string& type) {
  static const Json kGpt2 = {{"activation_function", "gelu_new"},
                             {"layer_norm_epsilon", 1e-5},
                             {"n_positions", 1024},
                             {"tie_word_embeddings", true}};
  static const Json kLlama = {{"attention_bias", false},        {"mlp_bias", false},
                              {"hidden_act", "silu"},           {"rms_norm_eps", 1e-6},
                              {"rope_theta", 10000.0},          {"tie_word_embeddings", false},
                              {"max_position_embeddings", 2048}};
  static const Json kT5 = {
      {"feed_forward_proj", "relu"},          {"layer_norm_epsilon", 1e-6},
      {"relative_attention_num_buckets", 32}, {"relative_attention_max_distance", 128},
      {"is_encoder_decoder", true},           {"decoder_start_token_id", 0},
      {"tie_word_embeddings", true}};
  if (type == "t5") return kT5;
  return type == "gpt2" ? kGpt2 : kLlama;
}

class ConfigCheck {
 public:
  ConfigCheck(const std::string& path, const Json& theirs, const ModelSpec& model)
      : path_(path), theirs_(theirs), model_(model) {}

  void run() const {
    const Json ours = Json::parse(huggingface_config(model_, DType::kF32));
    const auto type = ours.at("model_type").get<std::string>();
    for (const auto& [key, value] : ours.items()) {
      if (std::find(kCosmetic.begin(), kCosmetic.end(), key) != kCosmetic.end()) continue;
      const Json found = value_of(key, type);
      const bool fits = key == "max_position_embeddings" && found.is_number()
                            ? found >= value  // without a table of positions, fewer are a choice
                            : found == value;
      if (!fits) {
        refuse(fmt::format("{} is {}, this job's model has {}", key, found.dump(), value.dump()));
      }
    }
    check_rope();
  }

 private:
  [[noreturn]] void refuse(const std::string& text) const {
    throw ConfigError(fmt::format("{}: {}", path_, text));
  }

  bool has(const char* key) const { return theirs_.contains(key) && !theirs_.at(key).is_null(); }

  Json value_of(const std::string& key, const std::string& type) const {
    if (key == "rope_theta" && has("rope_parameters") &&
        theirs_.at("rope_parameters").is_object()) {
      return theirs_.at("rope_parameters").value("rope_theta", Json(10000.0));
    }
    if (has(key.c_str())) return theirs_.at(key);
    const Json& defaults = defaults_of(type);
    if (defaults.contains(key)) return defaults.at(key);
    // Sizes that follow from others.
    if (key == "n_inner" && has("n_embd")) return 4 * number("n_embd");
    if (key == "num_key_value_heads" && has("num_attention_heads")) {
      return number("num_attention_heads");
    }
    if (key == "head_dim" && has("hidden_size") && has("num_attention_heads")) {
      return number("hidden_size") / std::max<int64_t>(1, number("num_attention_heads"));
    }
    if (key == "num_decoder_layers" && has("num_layers")) return number("num_layers");
    refuse(fmt::format("it has no '{}'", key));
  }

  int64_t number(const char* key) const {
    if (!theirs_.at(key).is_number_integer()) {
      refuse(fmt::format("{} is {}, not a whole number", key, theirs_.at(key).dump()));
    }
    return theirs_.at(key).get<int64_t>();
  }

  // Stretched rotary embeddings compute something else.
  void check_rope() const {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      if (!has(key)) continue;
      const Json& rope = theirs_.at(key);
      if (!rope.is_object()) refuse(fmt::format("{} is {}", key, rope.dump()));
      const Json kind = rope.value("rope_type", rope.value("type", Json("default")));
      if (kind != "default") {
        refuse(fmt::format("{} asks for the rotary embedding {}, and the engine runs the plain one",
                           key, kind.dump()));
      }
    }
  }

  const std::string& path_;
  const Json& theirs_;
  const ModelSpec& model_;
};

}  // namespace

void check_huggingface_config(const std::string& path, const std::string& text,
                              const ModelSpec& model) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) throw ConfigError(fmt::format("{}: no JSON object", path));
  ConfigCheck(path, json, model).run();
}

}  // namespace smp
