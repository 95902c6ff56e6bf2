#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "json_depth.h"
#include "smp/plan/errors.h"
#include "smp/plan/json.h"
#include "smp/runtime/huggingface_model.h"
#include "smp/runtime/huggingface_weights.h"

// A foreign config.json against the one that we would write of the model: every key that decides
// what the model computes must say the same, or be absent where its default does.
namespace smp {
namespace {

// Keys of ours that another file may set as it likes: they say how weights were drawn, stored,
// trained or sampled from.
constexpr std::array kCosmetic = {
    "architectures", "initializer_range", "resid_pdrop",  "embd_pdrop",
    "attn_pdrop",    "bos_token_id",      "eos_token_id", "dropout_rate",
    "pad_token_id",  "torch_dtype",       "dtype"};
// Keys that are compared by what they mean together.
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

// What transformers' configuration_*.py say where a key is absent.
const OrderedJson& defaults_of(const std::string& type) {
  static const OrderedJson kGpt2 = {{"activation_function", "gelu_new"},
                                    {"layer_norm_epsilon", 1e-5},
                                    {"n_positions", 1024},
                                    {"tie_word_embeddings", true}};
  static const OrderedJson kLlama = {
      {"attention_bias", false},      {"mlp_bias", false},
      {"hidden_act", "silu"},         {"rms_norm_eps", 1e-6},
      {"tie_word_embeddings", false}, {"max_position_embeddings", 2048}};
  static const OrderedJson kMistral = {{"attention_bias", false},
                                       {"mlp_bias", false},
                                       {"hidden_act", "silu"},
                                       {"rms_norm_eps", 1e-6},
                                       {"num_key_value_heads", 8},
                                       {"tie_word_embeddings", false},
                                       {"max_position_embeddings", 131072}};
  static const OrderedJson kQwen2 = {{"hidden_act", "silu"},
                                     {"rms_norm_eps", 1e-6},
                                     {"num_key_value_heads", 32},
                                     {"tie_word_embeddings", false},
                                     {"max_position_embeddings", 32768}};
  static const OrderedJson kQwen3 = {{"attention_bias", false},
                                     {"head_dim", 128},
                                     {"hidden_act", "silu"},
                                     {"rms_norm_eps", 1e-6},
                                     {"num_key_value_heads", 32},
                                     {"tie_word_embeddings", false},
                                     {"max_position_embeddings", 32768}};
  static const OrderedJson kPhi = {{"hidden_act", "gelu_new"},
                                   {"layer_norm_eps", 1e-5},
                                   {"tie_word_embeddings", false},
                                   {"max_position_embeddings", 2048}};
  static const OrderedJson kT5 = {
      {"feed_forward_proj", "relu"},          {"layer_norm_epsilon", 1e-6},
      {"relative_attention_num_buckets", 32}, {"relative_attention_max_distance", 128},
      {"is_encoder_decoder", true},           {"decoder_start_token_id", 0},
      {"tie_word_embeddings", true}};
  if (type == "gpt2") return kGpt2;
  if (type == "t5") return kT5;
  if (type == "mistral") return kMistral;
  if (type == "qwen2") return kQwen2;
  if (type == "qwen3") return kQwen3;
  return type == "phi" ? kPhi : kLlama;
}

constexpr double kPhiRotaryFactor = 0.5;  // where configuration_phi.py finds none
constexpr int64_t kMistralWindow = 4096;  // configuration_mistral.py
constexpr double kRopeTheta = 10000.0;

// Words for one activation (transformers' activations.py).
std::string activation_of(const std::string& word) {
  if (word == "gelu_pytorch_tanh" || word == "gelu_fast" || word == "gelu_accurate" ||
      word == "gelu_python_tanh") {
    return "gelu_new";
  }
  if (word == "gelu_python") return "gelu";
  return word == "swish" ? "silu" : word;
}

class ConfigCheck {
 public:
  ConfigCheck(const std::string& path, const OrderedJson& theirs, const ModelSpec& model)
      : path_(path), theirs_(theirs), model_(model) {}

  void run() const {
    const OrderedJson ours = OrderedJson::parse(huggingface_config(model_, DType::kF32));
    check_type(ours.at("model_type").get<std::string>());
    for (const auto& [key, value] : ours.items()) {
      if (is_among(kCosmetic, key) || is_among(kTogether, key)) continue;
      const OrderedJson found = value_of(key);
      if (!fits(key, found, value)) {
        refuse(fmt::format("{} is {}, this job's model has {}", key, found.dump(), value.dump()));
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
    const OrderedJson found = has("model_type") ? theirs_.at("model_type") : OrderedJson();
    if (found == ours || (found == "mistral" && ours == "llama")) return;
    if (!has("model_type")) refuse("it has no 'model_type'");
    refuse(fmt::format("model_type is {}, this job's model has \"{}\"", found.dump(), ours));
  }

  bool is_type(const char* type) const { return theirs_.at("model_type") == type; }

  static bool fits(const std::string& key, const OrderedJson& found, const OrderedJson& value) {
    // Without a table of positions, fewer are a choice.
    if (key == "max_position_embeddings" && found.is_number()) return found >= value;
    if ((key == "hidden_act" || key == "activation_function") && found.is_string()) {
      return activation_of(found.get<std::string>()) == value;
    }
    return found == value;
  }

  OrderedJson value_of(const std::string& key) const {
    if (has(key.c_str())) return theirs_.at(key);
    const OrderedJson& defaults = defaults_of(theirs_.at("model_type").get<std::string>());
    // Of these a null says that they follow from other sizes.
    const bool follows =
        theirs_.contains(key) && (key == "num_key_value_heads" || key == "head_dim");
    if (defaults.contains(key) && !follows) return defaults.at(key);
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

  // Their rotary embedding as one object, under the names of transformers 5. What is said in
  // several places must be the same.
  OrderedJson their_rope() const {
    OrderedJson rope = OrderedJson::object();
    std::map<std::string, std::string> places;
    const auto say = [&](std::string key, const std::string& place, const OrderedJson& value) {
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
    if (!rope.contains("rope_type")) rope["rope_type"] = "default";
    for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
      if (has(key)) say(key, key, theirs_.at(key));
    }
    if (!rope.contains("rope_theta")) rope["rope_theta"] = kRopeTheta;
    if (!rope.contains("partial_rotary_factor")) {
      rope["partial_rotary_factor"] = is_type("phi") ? kPhiRotaryFactor : 1.0;
    }
    return rope;
  }

  void check_rope(const OrderedJson& ours) const {
    const OrderedJson rope = their_rope();
    for (const auto& [key, value] : ours.items()) {
      if (key == "partial_rotary_factor") continue;
      const OrderedJson found = rope.value(key, OrderedJson());
      if (found == value) continue;
      refuse(fmt::format("{} of the rotary embedding is {}, this job's model has {}", key,
                         found.dump(), value.dump()));
    }
    const OrderedJson factor = rope.at("partial_rotary_factor");
    const double turned =
        factor.is_number() ? factor.get<double>() * static_cast<double>(model_.head_dim) : -1;
    const auto dim = static_cast<double>(rotary_dim_of(model_));
    if (turned >= dim && turned < dim + 1) return;
    refuse(
        fmt::format("partial_rotary_factor is {}, this job's model turns {} of a head's {} "
                    "elements (model.rotary_dim)",
                    factor.dump(), rotary_dim_of(model_), model_.head_dim));
  }

  // A window that no sequence is longer than is none.
  void check_window() const {
    const bool used = is_type("mistral") || is_type("smp") ||
                      (has("use_sliding_window") && theirs_.at("use_sliding_window") != false);
    OrderedJson window;
    if (used && has("sliding_window")) window = theirs_.at("sliding_window");
    if (is_type("mistral") && !theirs_.contains("sliding_window")) window = kMistralWindow;
    if (window == model_.sliding_window || (window.is_null() && model_.sliding_window == 0)) return;
    if (model_.sliding_window == 0 && window.is_number() && window >= model_.max_positions) return;
    refuse(
        fmt::format("sliding_window is {}, this job's model has {} (0 = none; a window of "
                    "model.max_positions or more is none)",
                    window.dump(), model_.sliding_window));
  }

  const std::string& path_;
  const OrderedJson& theirs_;
  const ModelSpec& model_;
};

}  // namespace

void check_huggingface_config(const std::string& path, const std::string& text,
                              const ModelSpec& model) {
  if (nests_too_deep(text)) {
    throw ConfigError(fmt::format("{}: nests more than {} levels deep", path, kMostJsonLevels));
  }
  const OrderedJson json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_object()) throw ConfigError(fmt::format("{}: no JSON object", path));
  ConfigCheck(path, json, model).run();
}

}  // namespace smp
