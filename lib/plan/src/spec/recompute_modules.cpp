#include "smp/plan/spec/recompute_modules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace smp {
namespace {

struct Module {
  const char* name;
  bool RecomputeModules::*flag;
  bool (*is_of)(const ModelSpec&);
  const char* needs;
};

bool has_experts(const ModelSpec& model) { return model.num_experts > 0; }

constexpr std::array kModules = {
    Module{"core_attn", &RecomputeModules::core_attention, nullptr, ""},
    Module{"mlp", &RecomputeModules::mlp, nullptr, ""},
    Module{"layernorm", &RecomputeModules::norms, nullptr, ""},
    Module{"moe", &RecomputeModules::moe, has_experts, "model.num_experts"},
    Module{"moe_act", &RecomputeModules::moe_activation, has_experts, "model.num_experts"},
    Module{"shared_experts", &RecomputeModules::shared_experts,
           [](const ModelSpec& model) { return model.shared_expert_ffn_hidden_size > 0; },
           "model.shared_expert_ffn_hidden_size"},
    Module{"mla_up_proj", &RecomputeModules::mla_up,
           [](const ModelSpec& model) { return model.kv_lora_rank > 0; }, "model.kv_lora_rank"},
};

const Module* module_of(const std::string& name) {
  for (const Module& module : kModules) {
    if (module.name == name) return &module;
  }
  return nullptr;
}

}  // namespace

RecomputeModules recompute_modules(const ParallelSpec& parallel) {
  RecomputeModules out;
  out.core_attention = parallel.recompute_modules.empty();
  for (const std::string& name : parallel.recompute_modules) {
    if (const Module* module = module_of(name)) out.*module->flag = true;
  }
  return out;
}

bool is_recompute_module(const std::string& name) { return module_of(name) != nullptr; }

std::string problem_of_recompute_modules(const std::vector<std::string>& modules,
                                         const ModelSpec& model) {
  for (const std::string& name : modules) {
    const Module* module = module_of(name);
    if (module == nullptr) {
      std::vector<std::string> names;
      for (const Module& known : kModules) names.emplace_back(known.name);
      return fmt::format("'{}' is none of {}", name, fmt::join(names, ", "));
    }
    if (module->is_of != nullptr && !module->is_of(model)) {
      return fmt::format("'{}' needs {}", name, module->needs);
    }
  }
  return "";
}

}  // namespace smp
