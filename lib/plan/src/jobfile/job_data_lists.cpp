#include "jobfile/job_data_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "spec/choices.h"
#include "text/scalar.h"
#include "text/yaml_writer.h"

namespace smp::jobfile {
namespace {

constexpr double kLargestWeight = 1e15;

struct DataKey {
  std::string_view name;
  bool required;
  std::function<std::string(const text::YamlNode&)> read;  // returns what is wrong
};

std::string read_text_into(const text::YamlNode& node, std::string& text) {
  text::Read<std::string> read = text::read_text(node);
  if (read.value) text = std::move(*read.value);
  return read.problem;
}

std::string read_format_into(const text::YamlNode& node, std::optional<DataFormat>& format) {
  if (text::is_auto(node)) return "";
  const text::Read<size_t> read = text::read_choice(node, choice_names<DataFormat>());
  if (read.value) format = static_cast<DataFormat>(*read.value);
  return read.problem;
}

std::string read_weight_into(const text::YamlNode& node, double& weight) {
  const text::Read<double> read = text::read_number(
      node, text::Scale::kNone, {.min = 0, .max = kLargestWeight, .min_excluded = true});
  if (read.value) weight = *read.value;
  return read.problem;
}

// A problem follows "item 3".
std::string read_map(const text::YamlNode& node, std::string_view example,
                     const std::vector<DataKey>& keys) {
  if (node.kind != text::YamlNode::Kind::kMap)
    return fmt::format("must be a map such as {}, not {}", example, text::described(node));
  for (const text::YamlEntry& entry : node.entries) {
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&](const DataKey& one) { return one.name == entry.key; });
    if (key == keys.end()) {
      std::vector<std::string_view> names;
      for (const DataKey& one : keys) names.push_back(one.name);
      return fmt::format("has the unknown key {}; its keys are {}",
                         text::quoted_for_message(entry.key), fmt::join(names, ", "));
    }
    const std::string problem = key->read(entry.value);
    if (!problem.empty()) return fmt::format("has a bad key: {} {}", entry.key, problem);
  }
  for (const DataKey& key : keys) {
    if (key.required && node.find(key.name) == nullptr) return fmt::format("needs {}", key.name);
  }
  return "";
}

template <typename T>
std::string read_list(const text::YamlNode& node, std::string_view example, std::vector<T>& list,
                      std::vector<DataKey> (*keys_of_item)(T&)) {
  if (node.kind != text::YamlNode::Kind::kList)
    return fmt::format("must be a list such as [{}], not {}", example, text::described(node));
  std::vector<T> read;
  for (const text::YamlNode& item : node.items) {
    T one;
    const std::string problem = read_map(item, example, keys_of_item(one));
    if (!problem.empty()) return fmt::format("item {} {}", read.size() + 1, problem);
    read.push_back(std::move(one));
  }
  std::set<std::string> names;
  for (const T& one : read) {
    if (!one.name.empty() && !names.insert(one.name).second)
      return fmt::format("has two items of the name {}", text::quoted_for_message(one.name));
  }
  list = std::move(read);
  return "";
}

std::vector<DataKey> source_keys(MixtureSource& source) {
  return {
      {"path", true, [&](const text::YamlNode& node) { return read_text_into(node, source.path); }},
      {"weight", true,
       [&](const text::YamlNode& node) { return read_weight_into(node, source.weight); }},
      {"format", false,
       [&](const text::YamlNode& node) { return read_format_into(node, source.format); }},
      {"name", false,
       [&](const text::YamlNode& node) { return read_text_into(node, source.name); }}};
}

std::vector<DataKey> set_keys(EvaluationSet& set) {
  return {
      {"name", true, [&](const text::YamlNode& node) { return read_text_into(node, set.name); }},
      {"path", true, [&](const text::YamlNode& node) { return read_text_into(node, set.path); }},
      {"format", false,
       [&](const text::YamlNode& node) { return read_format_into(node, set.format); }}};
}

std::string format_text(const std::optional<DataFormat>& format) {
  return format ? fmt::format(", format: {}", choice_name(*format)) : "";
}

}  // namespace

std::string read_sources(const text::YamlNode& node, std::vector<MixtureSource>& sources) {
  return read_list(node, "{path: wiki, weight: 0.3}", sources, source_keys);
}

std::string read_sets(const text::YamlNode& node, std::vector<EvaluationSet>& sets) {
  return read_list(node, "{name: code, path: code-val}", sets, set_keys);
}

std::string sources_text(const std::vector<MixtureSource>& sources) {
  std::vector<std::string> items;
  for (const MixtureSource& source : sources) {
    const std::string name =
        source.name.empty() ? "" : fmt::format(", name: {}", text::yaml_text(source.name));
    items.push_back(fmt::format("{{path: {}, weight: {}{}{}}}", text::yaml_text(source.path),
                                text::number_text(source.weight), format_text(source.format),
                                name));
  }
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string sets_text(const std::vector<EvaluationSet>& sets) {
  std::vector<std::string> items;
  for (const EvaluationSet& set : sets) {
    items.push_back(fmt::format("{{name: {}, path: {}{}}}", text::yaml_text(set.name),
                                text::yaml_text(set.path), format_text(set.format)));
  }
  return fmt::format("[{}]", fmt::join(items, ", "));
}

}  // namespace smp::jobfile
