#include "jobfile/job_layer_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/text/suggest.h"
#include "text/scalar.h"

namespace smp::jobfile {
namespace {

constexpr size_t kMostOperators = 1 << 16;

// Returns the kind, or what is wrong.
text::Read<OperatorKind> kind_of(const text::YamlNode& type) {
  const text::Read<std::string> name = text::read_text(type);
  if (!name.value) return {std::nullopt, "has a bad key: type " + name.problem};
  std::vector<std::string> known;
  for (const model::OperatorRules& rules : model::all_operator_rules())
    known.emplace_back(rules.type);
  const auto found = std::find(known.begin(), known.end(), *name.value);
  if (found != known.end()) return {static_cast<OperatorKind>(found - known.begin()), ""};
  const auto near = text::nearest(*name.value, known);
  return {std::nullopt,
          fmt::format("has the unknown type {}{}", text::quoted_for_message(*name.value),
                      near ? fmt::format(", did you mean '{}'?", *near)
                           : fmt::format("; known types are {}", fmt::join(known, ", ")))};
}

std::string read_keys(const text::YamlNode& item, const model::OperatorRules& rules,
                      OperatorSpec& spec, const text::YamlNode*& where) {
  std::vector<std::string> known;
  for (const model::OperatorKey& key : rules.keys) known.emplace_back(key.name);
  if (rules.takes_p) known.emplace_back("p");
  for (const text::YamlEntry& entry : item.entries) {
    if (entry.key == "type") continue;
    if (rules.takes_p && entry.key == "p") {
      const text::Read<double> read = text::read_number(entry.value, text::Scale::kNone,
                                                        {.min = 0, .max = 1, .max_excluded = true});
      if (!read.value) {
        where = &entry.value;
        return "has a bad key: p " + read.problem;
      }
      spec.p = *read.value;
      continue;
    }
    const auto key =
        std::find_if(rules.keys.begin(), rules.keys.end(),
                     [&](const model::OperatorKey& one) { return one.name == entry.key; });
    if (key == rules.keys.end()) {
      if (known.empty()) {
        return fmt::format("has the unknown key {}; {} has none",
                           text::quoted_for_message(entry.key), rules.type);
      }
      const auto near = text::nearest(entry.key, known);
      return fmt::format(
          "has the unknown key {}{}", text::quoted_for_message(entry.key),
          near ? fmt::format(", did you mean '{}'?", *near)
               : fmt::format("; keys of {} are {}", rules.type, fmt::join(known, ", ")));
    }
    const text::Read<int64_t> read = text::read_whole(entry.value, text::Scale::kNone,
                                                      {key->min, static_cast<uint64_t>(key->max)});
    if (!read.value) {
      where = &entry.value;
      return fmt::format("has a bad key: {} {}", entry.key, read.problem);
    }
    spec.*key->member = *read.value;
  }
  for (const model::OperatorKey& key : rules.keys) {
    if (item.find(key.name) != nullptr) continue;
    if (!key.otherwise) return fmt::format("needs {}, a required key of {}", key.name, rules.type);
    spec.*key.member = *key.otherwise;
  }
  if (rules.takes_p && item.find("p") == nullptr) {
    return fmt::format("needs p, a required key of {}", rules.type);
  }
  return "";
}

std::string read_item(const text::YamlNode& item, OperatorSpec& spec,
                      const text::YamlNode*& where) {
  const bool is_map = item.kind == text::YamlNode::Kind::kMap;
  if (!is_map && item.kind != text::YamlNode::Kind::kScalar) {
    return "must be a name such as relu or a map such as {type: linear, out: 10}, not " +
           text::described(item);
  }
  const text::YamlEntry* type = is_map ? item.find("type") : nullptr;
  if (is_map && type == nullptr) return "needs type";
  const text::Read<OperatorKind> kind = kind_of(is_map ? type->value : item);
  if (!kind.value) return kind.problem;
  spec.kind = *kind.value;
  return read_keys(item, model::rules_of(spec.kind), spec, where);
}

}  // namespace

namespace {

// Reads the entries that can be read, and keeps what is wrong with the others.
std::vector<OperatorSpec> read_items(const text::YamlNode& node,
                                     std::vector<LayerListProblem>& problems) {
  std::vector<OperatorSpec> found;
  if (node.kind != text::YamlNode::Kind::kList) {
    problems.push_back({&node, "must be a list such as [{type: linear, out: 64}, relu], not " +
                                   text::described(node)});
    return found;
  }
  if (node.items.empty() || node.items.size() > kMostOperators) {
    problems.push_back({&node, fmt::format("must have 1 to {} entries, not {}", kMostOperators,
                                           node.items.size())});
    return found;
  }
  for (size_t i = 0; i < node.items.size(); ++i) {
    OperatorSpec spec;
    const text::YamlNode* where = &node.items[i];
    const std::string problem = read_item(node.items[i], spec, where);
    if (!problem.empty()) problems.push_back({where, fmt::format("item {} {}", i, problem)});
    found.push_back(spec);
  }
  return found;
}

}  // namespace

std::vector<LayerListProblem> layer_list_problems(const text::YamlNode& node) {
  std::vector<LayerListProblem> problems;
  read_items(node, problems);
  return problems;
}

std::string read_layer_list(const text::YamlNode& node, std::vector<OperatorSpec>& operators,
                            const text::YamlNode*& where) {
  std::vector<LayerListProblem> problems;
  std::vector<OperatorSpec> found = read_items(node, problems);
  if (!problems.empty()) {
    where = problems.front().where;
    return problems.front().words;
  }
  operators = std::move(found);
  return "";
}

std::string layer_list_text(const std::vector<OperatorSpec>& operators) {
  std::vector<std::string> items;
  for (const OperatorSpec& spec : operators) {
    const model::OperatorRules& rules = model::rules_of(spec.kind);
    std::string keys;
    for (const model::OperatorKey& key : rules.keys) {
      const int64_t value = spec.*key.member;
      if (key.otherwise != value) keys += fmt::format(", {}: {}", key.name, value);
    }
    if (rules.takes_p) keys += fmt::format(", p: {}", text::number_text(spec.p));
    items.push_back(keys.empty() ? std::string(rules.type)
                                 : fmt::format("{{type: {}{}}}", rules.type, keys));
  }
  return fmt::format("[{}]", fmt::join(items, ", "));
}

}  // namespace smp::jobfile
