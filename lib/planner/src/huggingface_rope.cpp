#include "huggingface_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "smp/plan/suggest.h"

namespace smp {
namespace {

class RopeReader {
 public:
  RopeReader(const HuggingFaceType& type, ForeignReader& reader) : type_(type), reader_(reader) {}

  void read(int64_t head_dim) {
    theta();
    share(head_dim);
    scaling();
  }

 private:
  bool neox() const { return type_.blocks == HuggingFaceBlocks::kNeoX; }

  void set(std::string_view key, std::string_view path, std::string value) {
    reader_.set(
        "model." + std::string(path), std::move(value),
        reader_.has(key) ? std::string(key) : fmt::format("{}, by default of {}", key, type_.name));
  }

  void theta() {
    const std::string_view four = neox() ? "rotary_emb_base" : "rope_theta";
    const auto before = reader_.has(four) ? reader_.number(four) : reader_.number("rope_theta");
    const auto after = reader_.number("rope_parameters.rope_theta");
    if (before && after && *before != *after) {
      reader_.error("rope_parameters.rope_theta",
                    fmt::format("keys disagree: rope_parameters.rope_theta is {}, but {} is {}",
                                *after, four, *before));
    }
    const bool moe = type_.name == "mixtral";  // the one type with another default
    set(after ? "rope_parameters.rope_theta" : four, "rope_theta",
        fmt::format("{}", after.value_or(before.value_or(moe ? 1e6 : 1e4))));
  }

  // int(head_dim * factor), as transformers computes it; defaults of configuration_gpt_neox.py and
  // configuration_phi.py.
  void share(int64_t head_dim) {
    const bool phi = type_.blocks == HuggingFaceBlocks::kPhi;
    const std::string_view four = neox() ? "rotary_pct" : "partial_rotary_factor";
    const std::string_view five = "rope_parameters.partial_rotary_factor";
    const std::string_view key = reader_.has(five) ? five : four;
    const double factor = reader_.number(key).value_or(neox() ? 0.25 : phi ? 0.5 : 1.0);
    if (factor == 1.0 || !reader_.usable(key)) return;
    if (!neox() && !phi) {
      reader_.error(key,
                    fmt::format("{} is {}, and {} turns whole heads", key, factor, type_.name));
      return;
    }
    set(key, "rotary_dim",
        fmt::format("{}", static_cast<int64_t>(static_cast<double>(head_dim) * factor)));
  }

  // The group that says how frequencies are stretched, and the key in it.
  std::string group() const {
    for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
      if (!kind_key(std::string(name)).empty()) return std::string(name);
    }
    return "";
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
    if (from.empty()) return;
    const std::string key = kind_key(from);
    const std::string kind = *reader_.text(key);
    if (kind == "default") return;
    constexpr std::array kKinds = {"linear", "llama3", "dynamic", "yarn", "longrope"};
    if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) {
      reader_.error(key, fmt::format("{} {} is not known here: default, linear, llama3, dynamic, "
                                     "yarn and longrope are",
                                     key, quoted_for_message(kind)));
      return;
    }
    set(key, "rope_scaling", kind);
    copy(from + ".factor", "rope_scaling_factor", kind == "linear" || kind == "llama3");
    if (kind != "llama3") return;
    copy(from + ".low_freq_factor", "rope_low_freq_factor", true);
    copy(from + ".high_freq_factor", "rope_high_freq_factor", true);
    copy(from + ".original_max_position_embeddings", "rope_original_positions", true);
  }

  void copy(const std::string& key, std::string_view path, bool needed) {
    if (const auto value = reader_.number(key)) {
      set(key, path, fmt::format("{}", *value));
    } else if (needed && reader_.usable(key)) {
      reader_.error(group() + ".rope_type", fmt::format("this rotary embedding needs {}", key));
    }
  }

  const HuggingFaceType& type_;
  ForeignReader& reader_;
};

}  // namespace

void read_huggingface_rope(const HuggingFaceType& type, int64_t head_dim, ForeignReader& reader) {
  RopeReader(type, reader).read(head_dim);
}

}  // namespace smp
