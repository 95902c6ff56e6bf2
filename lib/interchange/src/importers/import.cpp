#include "smp/interchange/importers/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "importers/foreign_keys.h"
#include "importers/hjson.h"
#include "importers/nemo_command.h"
#include "importers/other_formats.h"
#include "importers/printed_config.h"
#include "importers/smp_dictionary.h"
#include "importers/yaml_formats.h"
#include "pyscript/python_script.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/json_tree.h"
#include "smp/plan/text/suggest.h"

namespace smp::importers {
namespace {

// Comments may stand before it, as DeepSpeed's Hjson has them; those of # begin other files too.
bool is_json(std::string_view text) {
  const auto begins = [](std::string_view of) {
    const size_t first = of.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
    return first != std::string_view::npos && of[first] == '{';
  };
  if (begins(text)) return true;
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool comment = first != std::string_view::npos &&
                       (text[first] == '#' || text.substr(first).starts_with("//") ||
                        text.substr(first).starts_with("/*"));
  if (!comment) return false;
  const std::string json = json_of_hjson(text);
  const size_t brace = json.find_first_not_of(" \t\r\n");
  const size_t next = brace != json.npos ? json.find_first_not_of(" \t\r\n", brace + 1) : json.npos;
  return begins(json) && next != json.npos && json[next] == '"';
}

// --FLAG of Megatron, wherever a word begins.
bool has_megatron_flag(std::string_view text) {
  for (size_t at = text.find("--"); at != text.npos; at = text.find("--", at + 2)) {
    if (at > 0 && std::string_view(" \t\r\n\"'(=").find(text[at - 1]) == text.npos) continue;
    const std::string_view rest = text.substr(at + 2);
    const std::string_view flag =
        rest.substr(0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_"));
    if (std::ranges::any_of(megatron_keys(), [&](const auto& row) { return row.key == flag; })) {
      return true;
    }
  }
  return false;
}

bool has_any(const text::YamlNode& root, std::initializer_list<std::string_view> keys) {
  return std::ranges::any_of(keys, [&](const auto key) { return root.find(key) != nullptr; });
}

// Keys of `root` that stand at the top of a table's.
size_t keys_in(const text::YamlNode& root, const std::vector<ForeignKey>& table) {
  return static_cast<size_t>(std::ranges::count_if(root.entries, [&](const text::YamlEntry& entry) {
    return std::ranges::any_of(table, [&](const ForeignKey& row) {
      return row.key.substr(0, row.key.find('.')) == entry.key;
    });
  }));
}

// Python that says what SageMaker shall start; JSON has no names to assign to, and YAML no calls.
bool is_sagemaker_script(std::string_view text) {
  const auto says = [&](std::string_view word) { return text.find(word) != text.npos; };
  return says("smdistributed") || says("modelparallel") || says("smp_options") || says("SMP(") ||
         says("_parallel_degree\"") || says("_parallel_degree'") ||
         (says("distribution") && says("instance_type"));
}

// SMP's dictionary by its wrapping, or its parameters alone.
bool is_smp_dictionary(const pyscript::PythonValue& value) {
  return std::ranges::any_of(value.entries, [](const pyscript::PythonEntry& entry) {
    if (entry.key == "smdistributed" || entry.key == "modelparallel") return true;
    const auto is = [&](const ForeignKey& row) { return row.key == entry.key; };
    return std::ranges::any_of(smp_v1_keys(), is) || std::ranges::any_of(smp_v2_keys(), is);
  });
}

void refuse_other(const jobfile::JobSource& source, const text::YamlNode& root) {
  const std::string other = other_format(root);
  if (!other.empty()) throw ConfigError(fmt::format("{}: this is {}", source.path, other));
}

// What can be read of it: a text of another kind has mistakes as YAML.
text::YamlNode yaml_root(const jobfile::JobSource& source) {
  text::Diagnostics quiet;
  return text::parse_yaml(source.text, quiet.add_source(source.path, source.text), quiet).root;
}

constexpr std::array<std::string_view, 5> kOwnSections = {"model", "cluster", "training",
                                                          "parallel", "smp_plan"};

bool is_own_section(const text::YamlEntry& entry) {
  return std::ranges::count(kOwnSections, entry.key) > 0;
}

// Sections of smp's own files.
bool has_own_section(const text::YamlNode& root) {
  return root.kind == text::YamlNode::Kind::kMap &&
         std::ranges::any_of(root.entries, is_own_section);
}

// A file of smp, whose comments may name flags and scripts: those of imported jobs do.
bool is_own_file(const text::YamlNode& root) {
  const auto is_own = [](const text::YamlEntry& entry) {
    return entry.key == "name" || is_own_section(entry);
  };
  return has_own_section(root) && std::ranges::all_of(root.entries, is_own) && !yaml_format(root);
}

std::optional<ForeignFormat> json_format(const jobfile::JobSource& source) {
  text::Diagnostics diagnostics;
  const text::YamlTree tree = text::parse_json(
      json_of_hjson(source.text), diagnostics.add_source(source.path, source.text), diagnostics);
  if (!tree.complete) {
    // A dictionary as it stands in a script: 'x', True, or a comma too many.
    text::Diagnostics of_python;
    const pyscript::PythonScript script = pyscript::read_python(
        source.text, of_python.add_source(source.path, source.text), of_python);
    const bool is_python = !of_python.any() && script.last != nullptr &&
                           script.last->kind == pyscript::PythonValue::Kind::kMap;
    if (is_python && is_smp_dictionary(*script.last)) return ForeignFormat::kSageMaker;
    text::Diagnostics of_yaml;
    const text::YamlTree yaml =
        text::parse_yaml(source.text, of_yaml.add_source(source.path, source.text), of_yaml);
    if (yaml.complete && has_own_section(yaml.root)) return std::nullopt;
    diagnostics.raise_if_any();
  }
  const text::YamlNode& root = tree.root;
  if (has_any(root, {"torchtitan_config"})) return ForeignFormat::kTorchTitan;
  refuse_other(source, root);
  if (has_any(root, {"cells"}) && has_any(root, {"nbformat"})) {
    throw ConfigError(source.path +
                      ": this is a notebook: convert it with jupyter nbconvert --to script, and "
                      "import the script");
  }
  if (has_any(root, {"smdistributed", "modelparallel"})) return smp_version(root, source.path);
  if (has_any(root, {"model_type", "architectures"})) return ForeignFormat::kHuggingFace;
  const size_t smp = std::max(keys_in(root, smp_v1_keys()), keys_in(root, smp_v2_keys()));
  const size_t deepspeed = keys_in(root, deepspeed_keys());
  const size_t huggingface = keys_in(root, huggingface_keys());
  if (smp > deepspeed && smp > huggingface) return smp_version(root, source.path);
  if (deepspeed > smp && deepspeed > huggingface) return ForeignFormat::kDeepSpeed;
  if (huggingface > smp && huggingface > deepspeed) return ForeignFormat::kHuggingFace;
  return std::nullopt;
}

}  // namespace

std::optional<ForeignFormat> foreign_format(const jobfile::JobSource& source) {
  const std::string_view text = source.text;
  if (text.find_first_not_of(" \t\r\n") == text.npos || text.find('\0') != text.npos) {
    return std::nullopt;
  }
  if (is_json(source.text)) return json_format(source);
  if (is_own_file(yaml_root(source))) return std::nullopt;
  if (is_sagemaker_script(source.text) && source.text.find('=') != std::string::npos) {
    return ForeignFormat::kSageMaker;
  }
  if (const std::string program = python_program(source.text); !program.empty()) {
    throw ConfigError(fmt::format("{}: this is {}", source.path, program));
  }
  if (is_torchtitan_toml(text)) return ForeignFormat::kTorchTitan;
  if (!printed_megatron_arguments(text).empty()) return ForeignFormat::kMegatron;
  const text::YamlNode root = yaml_root({source.path, printed_nemo_config(text)});
  if (const auto format = yaml_format(root)) return format;
  if (is_nemo_command(text)) return ForeignFormat::kNemo;
  refuse_other(source, root);
  // A job file with a mistake among its sections: its reader says which.
  if (has_own_section(root) && is_own_section(root.entries.front())) return std::nullopt;
  if (has_megatron_flag(source.text)) return ForeignFormat::kMegatron;
  if (is_accelerate_yaml(root)) return ForeignFormat::kAccelerate;
  return std::nullopt;
}

ForeignFormat recognise(const jobfile::JobSource& source) {
  const std::string_view text = source.text;
  if (text.find_first_not_of(" \t\r\n") == text.npos) {
    throw ConfigError(source.path + ": the file is empty");
  }
  if (text.find('\0') != text.npos) {
    throw ConfigError(
        source.path +
        ": the file contains NUL bytes, as in UTF-16 and binary files: save the text as UTF-8");
  }
  if (const auto format = foreign_format(source)) return *format;
  const text::YamlNode root = yaml_root(source);
  if (has_any(root, {"smp_plan"})) {
    throw ConfigError(source.path + ": this is a plan of smp, which needs no import");
  }
  if (has_own_section(root)) {
    throw ConfigError(source.path + ": this is a job file of smp, which needs no import");
  }
  if (is_json(source.text)) {
    throw ConfigError(
        fmt::format("{}: the format of this JSON is not clear from its keys: give --from hf, "
                    "smp-v1, smp-v2 or deepspeed",
                    source.path));
  }
  throw ConfigError(
      fmt::format("{}: not recognized as JSON, a Megatron command line or accelerate's YAML: give "
                  "the format with --from",
                  source.path));
}

namespace {

using TextReader = void (*)(const jobfile::JobSource&, int, text::Diagnostics&,
                            const ImportContext&, Imported&);

// Of formats that are no JSON or YAML as they stand; null for the others.
TextReader reader_of_text(ForeignFormat format) {
  switch (format) {
    case ForeignFormat::kMegatron: return read_megatron;
    case ForeignFormat::kSageMaker: return read_sagemaker;
    case ForeignFormat::kNemo: return read_nemo;
    case ForeignFormat::kTorchTitan: return read_torchtitan;
    default: return nullptr;
  }
}

text::YamlTree parse_as(ForeignFormat format, const std::string& text, int number,
                        text::Diagnostics& diagnostics) {
  switch (format) {
    case ForeignFormat::kAccelerate:
    case ForeignFormat::kLlamaFactory:
    case ForeignFormat::kAxolotl:
    case ForeignFormat::kAutomodel: return text::parse_yaml(text, number, diagnostics);
    case ForeignFormat::kDeepSpeed:
      return text::parse_json(json_of_hjson(text), number, diagnostics);
    default: return text::parse_json(text, number, diagnostics);
  }
}

}  // namespace

Imported import_source(const jobfile::JobSource& source, ForeignFormat format,
                       const ImportContext& context) {
  Imported out;
  out.format = format;
  out.file = source.path;
  text::Diagnostics diagnostics;
  const int number = diagnostics.add_source(source.path, source.text);
  if (const auto read = reader_of_text(format)) {
    read(source, number, diagnostics, context, out);
    diagnostics.raise_if_any();
    return out;
  }
  const text::YamlTree tree = parse_as(format, source.text, number, diagnostics);
  diagnostics.raise_if_any();
  switch (format) {
    case ForeignFormat::kHuggingFace: read_huggingface(tree.root, diagnostics, out); break;
    case ForeignFormat::kSmpV1: read_smp_v1(tree.root, diagnostics, context, out); break;
    case ForeignFormat::kSmpV2: read_smp_v2(tree.root, diagnostics, context, out); break;
    case ForeignFormat::kDeepSpeed: read_deepspeed(tree.root, diagnostics, context, out); break;
    case ForeignFormat::kAccelerate: read_accelerate(tree.root, diagnostics, context, out); break;
    case ForeignFormat::kLlamaFactory:
      read_llama_factory(tree.root, diagnostics, context, out);
      break;
    case ForeignFormat::kAxolotl: read_axolotl(tree.root, diagnostics, context, out); break;
    case ForeignFormat::kAutomodel: read_automodel(tree.root, diagnostics, context, out); break;
    case ForeignFormat::kMegatron:
    case ForeignFormat::kSageMaker:
    case ForeignFormat::kNemo:
    case ForeignFormat::kTorchTitan: break;  // above
  }
  diagnostics.raise_if_any();
  return out;
}

}  // namespace smp::importers
