#include "importers/named_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "smp/interchange/importers/import.h"
#include "smp/plan/jobfile/model_catalog.h"

namespace smp::importers {
namespace {

// "Meta-Llama-3.1-8B" and "llama3.1-8b" are one model.
std::string plain_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) out += static_cast<char>(std::tolower(byte));
  }
  return out;
}

// What is added to a model's name without changing its sizes.
constexpr std::array<std::string_view, 12> kTails = {"-instruct", "-chat", "-base", "-hf",
                                                     "-it",       "-v0.1", "-v0.2", "-v0.3",
                                                     "-2507",     "-pt",   "-2407", "-tokenizer"};

std::string lower(std::string_view name) {
  std::string out(name);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// "Llama3ModelProvider70B" and "Llama3Config70B" are "Llama370B".
std::string without_class_word(std::string name) {
  for (const std::string_view word : {"modelprovider", "provider", "config"}) {
    if (const size_t at = name.find(word); at != name.npos && at > 0) {
      name.erase(at, word.size());
      break;
    }
  }
  return name;
}

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

std::string_view published_model(std::string_view name) {
  if (const jobfile::NamedModel* model = jobfile::find_model(name)) return model->text;
  std::string wanted = lower(name.substr(name.rfind('/') + 1));
  for (bool cut = true; cut;) {
    cut = false;
    for (const std::string_view tail : kTails) {
      if (!wanted.ends_with(tail) || wanted.size() == tail.size()) continue;
      wanted.resize(wanted.size() - tail.size());
      if (const jobfile::NamedModel* model = jobfile::find_model(wanted)) return model->text;
      cut = true;
    }
  }
  if (wanted.starts_with("meta-")) wanted.erase(0, 5);
  wanted = plain_name(without_class_word(wanted));
  for (const jobfile::NamedModel& model : jobfile::named_models()) {
    if (plain_name(model.name) == wanted) return model.text;
  }
  return {};
}

bool is_known_model(const std::string& name, const Imported& file) {
  if (name.empty()) return false;
  const std::filesystem::path beside = std::filesystem::path(file.file).parent_path();
  return has_config(beside / name) || has_config(name) || !published_model(name).empty();
}

void add_named_model(std::string_view shown, text::Place place, const std::string& name,
                     const ImportContext& context, Imported& out) {
  if (context.num_layers || name.empty()) return;
  const std::string origin = fmt::format("{} = {}", shown, name);
  const std::filesystem::path beside = std::filesystem::path(out.file).parent_path();
  if (add_folder(beside / name, origin, out) || add_folder(name, origin, out)) return;
  const std::string_view text = published_model(name);
  if (text.empty() && jobfile::find_unpriced_model(name) != nullptr) {
    out.warnings.push_back(fmt::format("{}:{}:{}: {}", out.file, place.line, place.column,
                                       jobfile::unknown_model(name)));
    return;
  }
  if (text.empty()) {
    out.warnings.push_back(fmt::format(
        "{}:{}:{}: smp has no sizes of the model {}: import its config.json in the same call",
        out.file, place.line, place.column, text::quoted_for_message(name)));
    return;
  }
  text::Diagnostics quiet;
  const text::YamlTree tree =
      text::parse_yaml(text, quiet.add_source(name, std::string(text)), quiet);
  if (const text::YamlEntry* model = tree.root.find("model")) add_keys(model->value, origin, out);
}

}  // namespace smp::importers
