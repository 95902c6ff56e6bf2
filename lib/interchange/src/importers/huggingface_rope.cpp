#include "importers/huggingface_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>

#include "smp/plan/text/suggest.h"

namespace smp::importers {
namespace {

class RopeReader {
 public:
  explicit RopeReader(HuggingFaceReader reader)
      : type_(reader.type), reader_(reader.keys), model_(reader) {}

  // The positions that scaling reaches; 0 = no others than the file says.
  int64_t read(int64_t head_dim) {
    theta();
    share(head_dim);
    scaling();
    return positions_;
  }

 private:
  void theta() {
    const std::string_view own = type_.keys.rope_theta;
    const std::string_view key =
        one_of({"rope_parameters.rope_theta", own, "rope_theta", "rope_scaling.rope_theta"});
    model_.set_word(key.empty() ? own : key, "rope_theta",
                    fmt::format("{}", reader_.number(key).value_or(type_.defaults.rope_theta)));
  }

  // The first of several keys for one number that is given; they must agree. "" for none.
  std::string_view one_of(std::initializer_list<std::string_view> keys) {
    std::string_view first;
    for (const std::string_view key : keys) {
      if (!reader_.has(key)) continue;
      if (first.empty()) first = key;
      if (reader_.number(key) == reader_.number(first)) continue;
      reader_.error(first, fmt::format("keys disagree: {} is {}, but {} is {}", first,
                                       *reader_.number(first), key, *reader_.number(key)));
      break;
    }
    return first;
  }

  // rotary_dim = int(head_dim * factor), as transformers computes it.
  void share(int64_t head_dim) {
    const std::string_view four = type_.keys.rotary_share;
    const std::string_view given =
        one_of({"rope_parameters.partial_rotary_factor", four, "partial_rotary_factor",
                "rope_scaling.partial_rotary_factor"});
    const std::string_view key = given.empty() ? four : given;
    const double factor = reader_.number(key).value_or(type_.defaults.rotary_share);
    if (factor == 1.0 || !reader_.usable(key)) return;
    if (type_.defaults.rotary_share == 1.0) {
      reader_.error(key,
                    fmt::format("{} is {}, but {} rotates whole heads", key, factor, type_.name));
      return;
    }
    model_.set_word(
        key, "rotary_dim",
        fmt::format("{}", static_cast<int64_t>(static_cast<double>(head_dim) * factor)));
  }

  // The group that says how frequencies are stretched, and the key in it.
  std::string group() const {
    for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
      if (!kind_key(std::string(name)).empty()) return std::string(name);
    }
    return "";
  }

  // A file of both dialects says the same in both.
  void check_both_groups() {
    const std::string four = kind_key("rope_scaling");
    const std::string five = kind_key("rope_parameters");
    if (four.empty() || five.empty()) return;
    if (reader_.text(four) != reader_.text(five)) {
      reader_.error(five, fmt::format("keys disagree: {} is {}, but {} is {}", five,
                                      *reader_.text(five), four, *reader_.text(four)));
    }
    for (const std::string_view number :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      const std::string a = fmt::format("rope_parameters.{}", number);
      const std::string b = fmt::format("rope_scaling.{}", number);
      one_of({a, b});
    }
  }
  std::string kind_key(const std::string& group) const {
    for (const std::string_view name : {".rope_type", ".type"}) {
      const std::string key = group + std::string(name);
      if (reader_.has(key)) return key;
    }
    return "";
  }

  void scaling() {
    const std::string from = group();
    if (from.empty()) {
      // Without the key it is a yarn of the class's own.
      if (type_.model_class == huggingface::HuggingFaceClass::kGptOss &&
          !reader_.is_null("rope_scaling")) {
        reader_.error(type_.keys.layers, "rope_scaling is missing: write the file's yarn, or null");
      }
      return;
    }
    check_both_groups();
    const std::string key = kind_key(from);
    const std::string kind = *reader_.text(key);
    if (kind == "default") return;
    constexpr std::array kKinds = {"linear", "llama3", "dynamic", "yarn", "longrope"};
    if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) {
      reader_.error(key, fmt::format("{} {} is not supported; supported are default, linear, "
                                     "llama3, dynamic, yarn and longrope",
                                     key, text::quoted_for_message(kind)));
      return;
    }
    model_.set_word(key, "rope_scaling", kind);
    const bool stretches = kind == "yarn" || kind == "dynamic";
    copy(from + ".factor", "rope_scaling_factor",
         kind == "linear" || kind == "llama3" || stretches);
    if (stretches) reach(from);
    if (kind == "yarn") yarn(from);
    if (kind == "longrope") longrope(from);
    if (kind != "llama3") return;
    copy(from + ".low_freq_factor", "rope_low_freq_factor", true);
    copy(from + ".high_freq_factor", "rope_high_freq_factor", true);
    copy(from + ".original_max_position_embeddings", "rope_original_positions", true);
  }

  // The factor is how far the model's positions reach, whatever the file says of it.
  void longrope(const std::string& from) {
    const std::string in_group = from + ".original_max_position_embeddings";
    const std::string original =
        reader_.has(in_group) ? in_group : "original_max_position_embeddings";
    copy(original, "rope_original_positions", true);
    if (const auto positions = reader_.number(original)) {
      const double reached = static_cast<double>(model_.positions());
      model_.set_word(type_.keys.positions, "rope_scaling_factor",
                      fmt::format("{}", std::max(1.0, reached / *positions)));
    }
    copy(from + ".attention_factor", "rope_attention_factor", false);
    for (const auto& [key, path] : {std::pair{".short_factor", "rope_short_factors"},
                                    std::pair{".long_factor", "rope_long_factors"}}) {
      const text::YamlNode* const factors = reader_.node(from + key);
      if (factors == nullptr) {
        reader_.error(kind_key(from),
                      fmt::format("the key {}{} is missing for longrope", from, key));
        continue;
      }
      std::string list;
      for (const text::YamlNode& factor : factors->items) {
        list += fmt::format("{}{}", list.empty() ? "" : ", ", factor.text);
      }
      model_.set_word(from + key, path, fmt::format("[{}]", list));
    }
  }

  // Without original positions the file's own are taken for them.
  void yarn(const std::string& from) {
    const std::string original = from + ".original_max_position_embeddings";
    if (reader_.has(original)) {
      copy(original, "rope_original_positions", true);
    } else if (reader_.usable(original)) {
      model_.set(type_.keys.positions, "rope_original_positions", model_.positions());
    }
    for (const auto& [key, path] :
         {std::pair{".beta_fast", "rope_beta_fast"}, std::pair{".beta_slow", "rope_beta_slow"},
          std::pair{".attention_factor", "rope_attention_factor"},
          std::pair{".mscale", "rope_mscale"},
          std::pair{".mscale_all_dim", "rope_mscale_all_dim"}}) {
      copy(from + key, path, false);
    }
    if (!reader_.boolean(from + ".truncate").value_or(true)) {
      model_.set_word(from + ".truncate", "rope_truncate", "false");
    }
  }

  // yarn and dynamic make positions that the weights know from the original ones: some files give
  // these as max_position_embeddings, others what they reach.
  void reach(const std::string& from) {
    const std::string original = from + ".original_max_position_embeddings";
    const auto factor = reader_.number(from + ".factor");
    const double said = static_cast<double>(model_.positions());
    if (!factor) return;
    const double reached = reader_.number(original).value_or(said) * *factor;
    constexpr double kMost = 1 << 28;
    if (reached <= said || reached > kMost) return;
    positions_ = static_cast<int64_t>(reached);
  }

  void copy(const std::string& key, std::string_view path, bool needed) {
    if (const auto value = reader_.number(key)) {
      model_.set_word(key, path, fmt::format("{}", *value));
    } else if (needed && reader_.usable(key)) {
      reader_.error(group() + ".rope_type",
                    fmt::format("the key {} is missing for this kind of rotary embedding", key));
    }
  }

  const huggingface::HuggingFaceType& type_;
  ForeignReader& reader_;
  HuggingFaceReader model_;
  int64_t positions_ = 0;
};

}  // namespace

int64_t read_huggingface_rope(HuggingFaceReader reader, int64_t head_dim) {
  return RopeReader(reader).read(head_dim);
}

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

}  // namespace smp::importers
