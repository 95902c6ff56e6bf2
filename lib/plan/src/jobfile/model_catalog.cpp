#include "smp/plan/jobfile/model_catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "jobfile/model_names.h"
#include "smp/plan/text/suggest.h"
#include "smp/plan/text/yaml_tree.h"

namespace smp::jobfile {
namespace {

constexpr std::string_view kDeltaNets =
    "its layers of linear attention (gated delta nets) are not priced";

constexpr std::array kUnpriced = {
    UnpricedModel{"Qwen/Qwen3-Next-80B-A3B", kDeltaNets},
    UnpricedModel{"moonshotai/Kimi-Linear-48B-A3B", kDeltaNets},
    UnpricedModel{"deepseek-ai/DeepSeek-V3.2",
                  "its attention to chosen tokens (DSA) is not priced: deepseek-v3 has the other "
                  "layers"},
    UnpricedModel{"ai21labs/AI21-Jamba-Large-1.5", "its layers of Mamba-1 are not priced"},
    UnpricedModel{"MiniMaxAI/MiniMax-M1-80k", "its layers of lightning attention are not priced"},
    UnpricedModel{"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B",
                  "its latent experts, of less than the model's width, are not priced"},
    UnpricedModel{"flux_12b", "it makes images and is no language model"},
};

using ModelsByName = std::map<std::string, const NamedModel*, std::less<>>;

const ModelsByName& models_by_name() {
  static const ModelsByName kModels = [] {
    ModelsByName models;
    for (const NamedModel& model : named_models()) {
      models.emplace(compared_name(model.name), &model);
      for (const std::string& name : other_names(model)) {
        models.emplace(compared_name(name), &model);
      }
    }
    return models;
  }();
  return kModels;
}

}  // namespace

std::span<const UnpricedModel> unpriced_models() { return kUnpriced; }

const NamedModel* find_model(std::string_view name) {
  const auto found = models_by_name().find(compared_name(name));
  return found == models_by_name().end() ? nullptr : found->second;
}

const UnpricedModel* find_unpriced_model(std::string_view name) {
  const std::string wanted = compared_name(name);
  const auto* found = std::ranges::find_if(
      kUnpriced, [&](const UnpricedModel& model) { return compared_name(model.name) == wanted; });
  return found == kUnpriced.end() ? nullptr : found;
}

std::vector<std::string> models_like(std::string_view name) {
  constexpr size_t kMost = 3;
  const std::string wanted = compared_name(name);
  // A part of a name is nearer than any slip of the keyboard.
  std::vector<std::pair<int, std::string>> near;
  const int limit = std::max(1, static_cast<int>(wanted.size()) / 3);
  for (const auto& [known, model] : models_by_name()) {
    if (wanted.empty()) break;
    const bool part = wanted.size() > 2 && known.find(wanted) != std::string::npos;
    const int distance = part ? 0 : text::edit_distance(wanted, known);
    if (distance <= limit) near.emplace_back(distance, model->name);
  }
  std::ranges::stable_sort(near, {}, [](const auto& item) { return item.first; });
  std::vector<std::string> names;
  for (const auto& [distance, known] : near) {
    if (names.size() == kMost) break;
    if (std::ranges::find(names, known) == names.end()) names.push_back(known);
  }
  return names;
}

std::string unknown_model(std::string_view name) {
  const std::string shown = text::quoted_for_message(name);
  if (const UnpricedModel* known = find_unpriced_model(name)) {
    return fmt::format("model {} is known, but {}", shown, known->why);
  }
  std::vector<std::string> near = models_like(name);
  for (std::string& one : near) one = fmt::format("'{}'", one);
  return fmt::format(
      "unknown model {}{} smp-plan models lists all models", shown,
      near.empty() ? "." : fmt::format(", did you mean {}?", fmt::join(near, " or ")));
}

std::vector<std::string> other_names(const NamedModel& model) {
  constexpr std::string_view kAlso = "# Also: ";
  std::vector<std::string> names;
  const size_t begin = model.text.find(kAlso);
  if (begin == std::string_view::npos) return names;
  const size_t end = model.text.find("# Sizes: ", begin);
  std::string name;
  for (const char c : model.text.substr(begin + kAlso.size(), end - begin - kAlso.size())) {
    if (c == ',') {
      names.push_back(std::move(name));
      name.clear();
    } else if (c != ' ' && c != '\n' && c != '#') {
      name += c;
    }
  }
  if (!name.empty()) names.push_back(name);
  return names;
}

}  // namespace smp::jobfile
