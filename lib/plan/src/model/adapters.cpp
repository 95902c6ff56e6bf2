#include "smp/plan/model/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace smp::model {
namespace {

constexpr std::string_view kAllLinear = "all_linear";

// One adapter for several matrices of one input.
struct Joint {
  std::string_view word;
  std::array<std::string_view, 3> parts;
};
constexpr Joint kJoints[] = {{"attention.qkv", {"attention.q", "attention.k", "attention.v"}},
                             {"mlp.gate_up", {"mlp.gate", "mlp.up", ""}}};

bool is_of(const Joint& joint, std::string_view word) {
  return !word.empty() && std::ranges::find(joint.parts, word) != joint.parts.end();
}

bool has(const std::vector<std::string>& targets, std::string_view word) {
  return std::ranges::find(targets, word) != targets.end();
}

// "cross_attention.q" and "mlp.experts.up" are the targets attention.q and mlp.up.
std::string target_word(const std::string& name) {
  const std::string last = name.substr(name.rfind('.'));
  return (name.starts_with("mlp") ? "mlp" : "attention") + last;
}

AdapterInput input_of(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  if (last == "q_up" || last == "kv_up") return AdapterInput::kLowRank;
  if (last == "output") return AdapterInput::kCore;
  if (last == "down") return AdapterInput::kHidden;
  const bool memory = name.starts_with("cross_attention") && last != "q";
  return memory ? AdapterInput::kMemory : AdapterInput::kNorm;
}

std::string reads_of(const std::string& name, AdapterInput input) {
  const std::string part = name.substr(0, name.rfind('.'));
  switch (input) {
    case AdapterInput::kNorm: return part == "mlp.shared_expert" ? "mlp.norm" : part + ".norm";
    case AdapterInput::kMemory: return part + ".memory";
    case AdapterInput::kLowRank: return name;
    case AdapterInput::kCore: return part + ".core";
    case AdapterInput::kHidden: return part + ".hidden";
  }
  return part;
}

AdaptedMatrix matrix_of(const ModelSpec& model, const ParameterSpec& parameter, std::string name) {
  // All experts' matrices lie in one: rows by expert.
  const int64_t copies = parameter.is_expert ? model.num_experts : 1;
  const auto rows = static_cast<double>(parameter.rows / copies);
  const auto cols = static_cast<double>(parameter.cols);
  AdaptedMatrix matrix;
  matrix.input = input_of(name);
  matrix.reads = reads_of(name, matrix.input);
  matrix.name = std::move(name);
  matrix.is_expert = parameter.is_expert;
  matrix.in.whole = cols;
  matrix.out.whole = rows;
  switch (parameter.split) {
    case TensorSplit::kReplicated: break;
    case TensorSplit::kRows:
      // Elsewhere tensor ranks cut each expert, as any MLP.
      if (parameter.is_expert && matrix.name.ends_with(".down")) {
        matrix.in = {.cut = cols};
      } else {
        matrix.out = {.cut = rows};
      }
      break;
    case TensorSplit::kKvHeads: matrix.out = {.kv = rows}; break;
    case TensorSplit::kColumns: matrix.in = {.cut = cols}; break;
  }
  return matrix;
}

// Each linear layer of a block.
std::vector<AdaptedMatrix> linear_layers(const ModelSpec& model, LayerKind block,
                                         const TensorKinds& kinds) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<AdaptedMatrix> matrices;
  for (const ParameterSpec& parameter : parameters_of(model, {block, 1, ""}, kinds)) {
    if (parameter.is_vector || parameter.name.find(".router.") != std::string::npos ||
        parameter.name.find("_gate.") != std::string::npos) {
      continue;
    }
    const size_t first = parameter.name.front() == '.' ? 1 : 0;  // of a layer without a name
    const size_t length = parameter.name.size() - first - kWeight.size();
    matrices.push_back(matrix_of(model, parameter, parameter.name.substr(first, length)));
  }
  return matrices;
}

std::vector<std::string> words_of(const ModelSpec& model) {
  std::vector<std::string> words;
  std::vector<LayerKind> kinds = {LayerKind::kBlock};
  if (model.num_experts > 0) kinds.push_back(LayerKind::kMoeBlock);
  for (const LayerKind kind : kinds) {
    for (const AdaptedMatrix& matrix : linear_layers(model, kind, {})) {
      const std::string word = target_word(matrix.name);
      if (!has(words, word)) words.push_back(word);
    }
  }
  return words;
}

}  // namespace

ParameterSum AdaptedMatrix::parameters(int64_t rank) const {
  const auto r = static_cast<double>(rank);
  const ParameterSum sum = in + out;
  return {r * sum.cut, r * sum.kv, r * sum.whole};
}

const std::vector<std::string>& adapter_targets() {
  static const std::vector<std::string> kTargets = {
      "all_linear",      "attention.q",      "attention.k",    "attention.v",
      "attention.qkv",   "attention.q_down", "attention.q_up", "attention.kv_down",
      "attention.kv_up", "attention.output", "mlp.gate",       "mlp.up",
      "mlp.gate_up",     "mlp.down"};
  return kTargets;
}

std::vector<AdaptedMatrix> adapted_matrices(const ModelSpec& model, LayerKind block,
                                            const std::vector<std::string>& targets,
                                            const TensorKinds& kinds) {
  std::vector<AdaptedMatrix> adapted;
  for (AdaptedMatrix& matrix : linear_layers(model, block, kinds)) {
    const std::string word = target_word(matrix.name);
    if (has(targets, kAllLinear) || has(targets, word)) {
      adapted.push_back(std::move(matrix));
      continue;
    }
    for (const Joint& joint : kJoints) {
      if (!has(targets, joint.word) || !is_of(joint, word)) continue;
      matrix.name = matrix.name.substr(0, matrix.name.rfind('.')) +
                    std::string(joint.word.substr(joint.word.rfind('.')));
      const bool joins = !adapted.empty() && adapted.back().name == matrix.name &&
                         adapted.back().reads == matrix.reads;
      if (joins) {
        adapted.back().out = adapted.back().out + matrix.out;
      } else {
        adapted.push_back(std::move(matrix));
      }
      break;
    }
  }
  return adapted;
}

std::string problem_of_targets(const ModelSpec& model, const std::vector<std::string>& targets) {
  if (targets.empty()) return "names no linear layer: write all_linear, or leave the key out";
  if (has(targets, kAllLinear)) {
    return targets.size() == 1 ? "" : "names layers beside all_linear, which is all of them";
  }
  const std::vector<std::string> words = words_of(model);
  for (const std::string& target : targets) {
    const auto joint = std::ranges::find(kJoints, target, &Joint::word);
    if (joint == std::end(kJoints)) {
      if (has(words, target)) continue;
      return fmt::format("names {}, which this model does not have: its linear layers are {}",
                         target, fmt::join(words, ", "));
    }
    for (const std::string_view part : joint->parts) {
      if (part.empty()) continue;
      if (!has(words, part)) {
        return fmt::format("names {}, but this model has no {}: its linear layers are {}", target,
                           part, fmt::join(words, ", "));
      }
      if (has(targets, part)) return fmt::format("names {} beside {}", part, target);
    }
  }
  return "";
}

}  // namespace smp::model
