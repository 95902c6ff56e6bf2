#include "model/layer_pattern.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <regex.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "smp/plan/base/check.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/model/operators.h"

namespace smp::model {
namespace {

// A dense block is named after its family, if one has exactly these blocks.
std::string_view block_name(const ModelSpec& model) {
  if (has_blocks_of(model, ModelFamily::kGpt2)) return "gpt2_block";
  return has_blocks_of(model, ModelFamily::kLlama) ? "llama_block" : "block";
}

std::string_view kind_name(const ModelSpec& model, LayerKind kind) {
  switch (kind) {
    case LayerKind::kEmbedding: return "embedding";
    case LayerKind::kBlock: return block_name(model);
    case LayerKind::kHead: return "head";
    case LayerKind::kMoeBlock: return "moe_block";
    case LayerKind::kCrossBlock: return "cross_block";
    case LayerKind::kMtpBlock: return "mtp_block";
    case LayerKind::kOperators:
    case LayerKind::kLastOperators: return "operators";
  }
  check_failed(__FILE__, __LINE__, "unknown layer kind");
}

// Types of the operators of a layer of a list; none for a transformer.
std::vector<std::string_view> types_of(const ModelSpec& model, const LayerSpec& layer) {
  std::vector<std::string_view> types;
  for (int64_t i = layer.first_operator; i < layer.end_operator; ++i) {
    types.push_back(rules_of(model.operators[static_cast<size_t>(i)].kind).type);
  }
  return types;
}

}  // namespace

struct LayerPattern::Compiled {
  regex_t regex{};
  int error = 0;

  bool found_in(std::string_view text) const {
    return regexec(&regex, std::string(text).c_str(), 0, nullptr, 0) == 0;
  }
};

LayerPattern::LayerPattern(const std::string& pattern) : compiled_(std::make_unique<Compiled>()) {
  // libc writes out what is counted: a{30000}{30000} would be more than any memory.
  if (pattern.find('{') != std::string::npos) {
    compiled_->error = REG_BADBR;
    problem_ =
        fmt::format("type:{} has a count in braces: write the expression without braces", pattern);
    return;
  }
  compiled_->error =
      regcomp(&compiled_->regex, pattern.c_str(), REG_EXTENDED | REG_ICASE | REG_NOSUB);
  if (compiled_->error == 0) return;
  char words[128];
  regerror(compiled_->error, &compiled_->regex, words, sizeof(words));
  problem_ = fmt::format("type:{} is not a regular expression: {}", pattern, words);
}

LayerPattern::~LayerPattern() {
  if (compiled_->error == 0) regfree(&compiled_->regex);
}

bool LayerPattern::matches(const ModelSpec& model, const LayerSpec& layer) const {
  SMP_CHECK(problem_.empty());
  const std::vector<std::string_view> types = types_of(model, layer);
  return compiled_->found_in(kind_name(model, layer.kind)) || compiled_->found_in(layer.name) ||
         std::any_of(types.begin(), types.end(),
                     [this](std::string_view type) { return compiled_->found_in(type); });
}

std::string kinds_in_words(const ModelSpec& model) {
  std::vector<std::string_view> kinds;
  const auto add = [&](std::string_view kind) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  };
  for (const LayerSpec& layer : layers_of(model)) {
    const std::vector<std::string_view> types = types_of(model, layer);
    for (const std::string_view type : types) add(type);
    if (types.empty()) add(kind_name(model, layer.kind));
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

}  // namespace smp::model
