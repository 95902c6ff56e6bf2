#include "importers/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "smp/plan/text/lower_case.h"

namespace smp::importers {
namespace {

struct Module {
  std::string_view name;
  std::string_view target;
};

// Linear layers by the names of Hugging Face transformers, Megatron-Core, NeMo 1 and Llama's own
// code.
constexpr Module kModules[] = {
    {"q_proj", "attention.q"},
    {"k_proj", "attention.k"},
    {"v_proj", "attention.v"},
    {"o_proj", "attention.output"},
    {"out_proj", "attention.output"},
    {"q_a_proj", "attention.q_down"},
    {"q_b_proj", "attention.q_up"},
    {"kv_a_proj_with_mqa", "attention.kv_down"},
    {"kv_b_proj", "attention.kv_up"},
    {"qkv_proj", "attention.qkv"},
    {"c_attn", "attention.qkv"},
    {"query_key_value", "attention.qkv"},
    {"Wqkv", "attention.qkv"},
    {"dense", "attention.output"},
    {"gate_proj", "mlp.gate"},
    {"up_proj", "mlp.up"},
    {"down_proj", "mlp.down"},
    {"gate_up_proj", "mlp.gate_up"},
    {"dense_h_to_4h", "mlp.up"},
    {"dense_4h_to_h", "mlp.down"},
    {"c_fc", "mlp.up"},
    {"fc1", "mlp.up"},
    {"fc2", "mlp.down"},
    {"w1", "mlp.gate"},
    {"w2", "mlp.down"},
    {"w3", "mlp.up"},
    {"linear_qkv", "attention.qkv"},
    {"linear_q", "attention.q"},
    {"linear_k", "attention.k"},
    {"linear_v", "attention.v"},
    {"linear_proj", "attention.output"},
    {"linear_q_down_proj", "attention.q_down"},
    {"linear_q_up_proj", "attention.q_up"},
    {"linear_q_proj", "attention.q"},
    {"linear_kv_down_proj", "attention.kv_down"},
    {"linear_kv_up_proj", "attention.kv_up"},
    {"linear_fc1", "mlp.gate_up"},
    {"linear_fc1_gate", "mlp.gate"},
    {"linear_fc1_up", "mlp.up"},
    {"linear_fc2", "mlp.down"},
    {"attention_qkv", "attention.qkv"},
    {"attention_dense", "attention.output"},
    {"mlp_fc1", "mlp.gate_up"},
    {"mlp_fc2", "mlp.down"},
};
constexpr std::string_view kAll = "all_linear";

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// "" for a module that is no linear layer of a block.
std::string_view target_of(std::string_view module) {
  const std::string_view last = last_part(module);
  for (const std::string_view all : {"all", "all-linear", "*", "*_proj"}) {
    if (last == all) return kAll;
  }
  const auto row = std::ranges::find(kModules, last, &Module::name);
  return row == std::end(kModules) ? std::string_view() : row->target;
}

// "layers.[\\d]+.(mlp|self_attn).(up|down|q)_proj", as axolotl's and PEFT's regular expressions
// have it, names up_proj, down_proj and q_proj; another text names itself.
std::vector<std::string> names_in(const std::string& module) {
  std::string_view rest = module;
  if (rest.ends_with('$')) rest.remove_suffix(1);
  const std::size_t open = rest.rfind('(');
  const std::size_t close = rest.find(')', std::min(open, rest.size()));
  if (open == rest.npos || close == rest.npos) return {module};
  // The last part has no ".*" before the group.
  std::string head(rest.substr(0, open));
  const std::size_t part = head.rfind('.') + 1;
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) != 0; };
  head.erase(head.begin() + static_cast<std::ptrdiff_t>(part),
             std::find_if(head.begin() + static_cast<std::ptrdiff_t>(part), head.end(), is_letter));
  std::string_view group = rest.substr(open + 1, close - open - 1);
  if (group.starts_with("?:")) group.remove_prefix(2);
  std::vector<std::string> names;
  while (true) {
    const std::size_t bar = std::min(group.find('|'), group.size());
    names.push_back(fmt::format("{}{}{}", head, group.substr(0, bar), rest.substr(close + 1)));
    if (bar == group.size()) return names;
    group.remove_prefix(bar + 1);
  }
}

// "*.layers.0.*.linear_qkv": a part that is a number is a layer's.
bool is_of_some_layers(std::string_view module) {
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  while (true) {
    const std::size_t dot = module.find('.');
    std::string_view part = module.substr(0, dot);
    if (part.ends_with('\\')) part.remove_suffix(1);
    if (!part.empty() && std::ranges::all_of(part, digit)) return true;
    if (dot == module.npos) return false;
    module.remove_prefix(dot + 1);
  }
}

std::string at(const Adapters& adapters, const Imported& out) {
  return fmt::format("{}:{}:{}", out.file, adapters.place.line, adapters.place.column);
}

void add(Imported& out, std::string_view name, const AdapterValue& value) {
  if (value.value.empty()) return;
  out.keys.push_back({fmt::format("training.lora.{}", name), value.value, value.origin});
}

}  // namespace

std::string set_adapters(const Adapters& adapters, Imported& out) {
  std::vector<std::string_view> targets;
  std::vector<std::string> modules;
  for (const std::string& module : adapters.modules) {
    std::ranges::move(names_in(module), std::back_inserter(modules));
  }
  for (const std::string& module : modules) {
    const std::string_view target = target_of(module);
    if (target.empty()) {
      out.warnings.push_back(fmt::format(
          "{}: {} {}: the plan has no adapter there, because it is no linear layer of a block",
          at(adapters, out), adapters.modules_origin, text::quoted_for_message(module)));
    } else if (std::ranges::find(targets, target) == targets.end()) {
      targets.push_back(target);
    }
    if (!target.empty() && is_of_some_layers(module)) {
      out.warnings.push_back(fmt::format("{}: {} {}: the plan has this adapter in all layers",
                                         at(adapters, out), adapters.modules_origin,
                                         text::quoted_for_message(module)));
    }
  }
  if (targets.empty() && !adapters.modules.empty()) {
    return fmt::format("{} names no linear layer of a block: {}", adapters.modules_origin,
                       fmt::join(adapters.modules, ", "));
  }
  const bool all = targets.empty() || std::ranges::find(targets, kAll) != targets.end();
  add(out, "rank", adapters.rank);
  add(out, "alpha", adapters.alpha);
  add(out, "targets",
      {all ? fmt::format("[{}]", kAll) : fmt::format("[{}]", fmt::join(targets, ", ")),
       adapters.modules_origin});
  add(out, "dropout", adapters.dropout);
  add(out, "quantized", adapters.quantized);
  return "";
}

bool is_low_rank(std::string_view kind) {
  const std::string lower = text::lower_case(last_part(kind));
  return lower == "peftconfig" || lower.find("lora") != lower.npos || lower == "dora";
}

void warn_adapter(std::string_view kind, text::Place place, Imported& out) {
  out.warnings.push_back(
      fmt::format("{}:{}:{}: {} is priced as full fine-tuning: the plan's gradients and optimizer "
                  "state are those of all weights; supported adapters are LoRA's",
                  out.file, place.line, place.column, kind));
}

std::vector<std::string> words_of(const text::YamlNode& node) {
  std::vector<std::string> words;
  if (node.kind == NodeKind::kScalar && !node.text.empty()) {
    // LLaMA-Factory: "q_proj,v_proj".
    for (std::size_t from = 0; from <= node.text.size();) {
      const std::size_t comma = std::min(node.text.find(',', from), node.text.size());
      std::string word = node.text.substr(from, comma - from);
      std::erase(word, ' ');
      if (!word.empty()) words.push_back(std::move(word));
      from = comma + 1;
    }
  }
  for (const text::YamlNode& item : node.items) words.push_back(item.text);
  return words;
}

}  // namespace smp::importers
