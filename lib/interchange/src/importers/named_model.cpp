#include "importers/named_model.h"

#include <fmt/format.h>

#include <filesystem>

#include "smp/interchange/importers/import.h"
#include "smp/plan/jobfile/model_catalog.h"

namespace smp::importers {
namespace {

// A value on one line. Texts of these files need no quotes, or have them.
std::string flow_text(const text::YamlNode& node) {
  std::string out;
  if (node.kind == NodeKind::kScalar) return node.quoted ? '"' + node.text + '"' : node.text;
  for (const text::YamlNode& item : node.items) {
    out += (out.empty() ? "" : ", ") + flow_text(item);
  }
  if (node.kind == NodeKind::kList) return fmt::format("[{}]", out);
  for (const text::YamlEntry& entry : node.entries) {
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", entry.key, flow_text(entry.value));
  }
  return node.kind == NodeKind::kMap ? fmt::format("{{{}}}", out) : "null";
}

void add_keys(const text::YamlNode& model, const std::string& origin, Imported& out) {
  for (const text::YamlEntry& entry : model.entries) {
    const std::string path = "model." + entry.key;
    if (out.find(path) == nullptr) out.keys.push_back({path, flow_text(entry.value), origin});
  }
}

text::YamlNode sizes_of(const jobfile::NamedModel& known) {
  text::Diagnostics quiet;
  const std::string text(known.text);
  const text::YamlTree tree = text::parse_yaml(text, quiet.add_source("", text), quiet);
  const text::YamlEntry* const model = tree.root.find("model");
  return model != nullptr ? model->value : text::YamlNode();
}

bool has_config(const std::filesystem::path& folder) {
  std::error_code none;
  return std::filesystem::is_regular_file(folder / "config.json", none);
}

bool add_folder(const std::filesystem::path& folder, const std::string& origin, Imported& out) {
  if (!has_config(folder)) return false;
  const Imported model = import_source(jobfile::load_job_source((folder / "config.json").string()),
                                       ForeignFormat::kHuggingFace);
  for (const ImportedKey& key : model.keys) {
    if (out.find(key.path) != nullptr) continue;
    out.keys.push_back({key.path, key.value, fmt::format("{}: {}", origin, key.origin)});
  }
  out.warnings.insert(out.warnings.end(), model.warnings.begin(), model.warnings.end());
  return true;
}

}  // namespace

bool is_known_model(const std::string& name, const Imported& file) {
  if (name.empty()) return false;
  const std::filesystem::path beside = std::filesystem::path(file.file).parent_path();
  return has_config(beside / name) || has_config(name) || jobfile::find_model(name) != nullptr;
}

void add_named_model(std::string_view shown, text::Place place, const std::string& name,
                     const ImportContext& context, Imported& out) {
  if (context.num_layers || name.empty()) return;
  const std::string origin = fmt::format("{} = {}", shown, name);
  const std::filesystem::path beside = std::filesystem::path(out.file).parent_path();
  if (add_folder(beside / name, origin, out) || add_folder(name, origin, out)) return;
  const jobfile::NamedModel* const known = jobfile::find_model(name);
  if (known == nullptr) {
    const bool is_priceable = jobfile::find_unpriced_model(name) == nullptr;
    out.unknown_model = fmt::format(
        "{}:{}:{}: {}{}", out.file, place.line, place.column, jobfile::unknown_model(name),
        is_priceable ? ", and a config.json in the same call gives one too" : "");
    out.warnings.push_back(out.unknown_model);
    return;
  }
  add_keys(sizes_of(*known), origin, out);
}

std::string vocabulary_of_model(const std::string& name) {
  const jobfile::NamedModel* const known = name.empty() ? nullptr : jobfile::find_model(name);
  if (known == nullptr) return "";
  const text::YamlNode model = sizes_of(*known);
  const text::YamlEntry* const rows = model.find("vocab_size");
  return rows != nullptr ? rows->value.text : "";
}

}  // namespace smp::importers
