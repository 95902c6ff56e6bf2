#include <fmt/format.h>

#include <algorithm>

#include "jobfile/field_table.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/text/comment_lines.h"
#include "smp/plan/text/yaml_tree.h"
#include "text/yaml_writer.h"

// A commented job file, from the table of keys.
namespace smp::jobfile {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

std::string comment(std::string_view text, const std::string& margin) {
  return text::comment_lines(text, margin + "#", margin + "#");
}

std::string written_default(const Field& field) {
  const JobSpec plain;
  if (takes_auto(field) || !field.rule.computed.empty()) return "auto";
  return value_text(field, plain).value_or("...");
}

const std::string* find(const Settings& given, const std::string& path) {
  const auto found = std::ranges::find(given, path, &Settings::value_type::first);
  return found != given.end() ? &found->second : nullptr;
}

// A list or a scalar as it would be written on one line.
std::string one_line(const text::YamlNode& node) {
  if (node.kind == text::YamlNode::Kind::kScalar)
    return node.quoted ? text::yaml_text(node.text) : node.text;
  std::string out;
  for (const text::YamlNode& item : node.items) out += (out.empty() ? "" : ", ") + one_line(item);
  return fmt::format("[{}]", out);
}

void add_settings(const text::YamlNode& map, const std::string& prefix, Settings& out) {
  for (const text::YamlEntry& entry : map.entries) {
    const std::string path = prefix + entry.key;
    if (entry.value.kind == text::YamlNode::Kind::kMap) {
      add_settings(entry.value, path + ".", out);
    } else if (entry.value.kind != text::YamlNode::Kind::kNull) {
      out.emplace_back(path, one_line(entry.value));
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> settings_of(const JobSource& source) {
  text::Diagnostics diagnostics;
  const text::YamlTree tree =
      text::parse_yaml(source.text, diagnostics.add_source(source.path, source.text), diagnostics);
  diagnostics.raise_if_any();
  Settings out;
  add_settings(tree.root, "", out);
  return out;
}

std::string job_template(const std::vector<std::pair<std::string, std::string>>& given,
                         const std::string& cluster) {
  std::string out =
      "# A job for smp-plan. A key that begins with # is not set and shows its default. auto means "
      "that\n# the planner chooses. docs/job-file.md lists all keys.\n";
  for (const Section& section : job_sections()) {
    const auto depth = section.path.empty() ? 0 : 1 + std::ranges::count(section.path, '.');
    const std::string margin(static_cast<size_t>(2 * depth), ' ');
    if (depth > 0) {
      out += fmt::format("\n{}", comment(section.doc, margin.substr(2)));
      const std::string word(section.path.substr(section.path.rfind('.') + 1));
      if (section.path == "cluster" && !cluster.empty()) {
        out += fmt::format("{}{}: {}\n", margin.substr(2), word, cluster);
        continue;
      }
      out += fmt::format("{}{}:\n", margin.substr(2), word);
    }
    for (const Field& field : job_fields()) {
      if (field.section != section.path) continue;
      const std::string* value = find(given, path_of(field));
      out += comment(field.doc, margin);
      out += fmt::format("{}{}{}: {}\n", margin, value != nullptr ? "" : "#", field.key,
                         value != nullptr ? *value : written_default(field));
    }
  }
  return out;
}

}  // namespace smp::jobfile
