#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>

#include "importers/foreign_keys.h"
#include "smp/interchange/importers/import.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/jobfile/model_catalog.h"
#include "smp/plan/jobfile/model_table.h"
#include "smp/plan/text/comment_lines.h"

// Imported keys as a job file, and config.json as the model of one.
namespace smp::importers {
namespace {

constexpr std::array<std::string_view, 9> kSections = {"model",         "cluster",
                                                       "training",      "training.optimizer",
                                                       "training.lora", "training.loss_scale",
                                                       "training.data", "training.evaluation",
                                                       "parallel"};
constexpr std::array<std::string_view, 4> kModelSizes = {"model.num_layers", "model.hidden_size",
                                                         "model.num_heads", "model.vocab_size"};

// Stand-ins for missing sections, so that the rest can be read: a model (of any sequence length),
// and a cluster that has every precision.
constexpr std::string_view kModelStandIn =
    "model: {family: llama, num_layers: 1, hidden_size: 2, num_heads: 1, ffn_hidden_size: 1, "
    "vocab_size: 2}\n";
constexpr std::string_view kExpertsStandIn = "model: {num_experts: 64, experts_per_token: 1}\n";
constexpr std::string_view kClusterStandIn =
    "cluster: {has_bf16: true, has_fp16: true, fp8_flops_per_s: 1, fp4_flops_per_s: 1}\n";

std::string_view section_of(std::string_view path) { return path.substr(0, path.rfind('.')); }

std::string listed_words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ", ";
    out += word;
  }
  return out;
}

std::string comment(std::string_view text) { return text::comment_lines(text, "#", "#  "); }

std::string one_line(const std::string& text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  return out;
}

std::string section_text(const std::vector<Imported>& files, std::string_view section) {
  const auto depth = std::ranges::count(section, '.');
  const std::string margin(static_cast<size_t>(2 + 2 * depth), ' ');
  std::string out;
  std::vector<std::string_view> written;
  for (const Imported& file : files) {
    for (const ImportedKey& key : file.keys) {
      if (section_of(key.path) != section || std::ranges::count(written, key.path) > 0) continue;
      written.push_back(key.path);
      const std::string line =
          fmt::format("{}{}: {}", margin, key.path.substr(section.size() + 1), key.value);
      out += fmt::format("{:<44}  # {}\n", line, one_line(key.origin));
    }
  }
  if (out.empty()) return out;
  const std::string_view word = section.substr(section.rfind('.') + 1);
  return fmt::format("{}{}:\n", margin.substr(2), word) + out;
}

std::string job_text(const std::vector<Imported>& files) {
  std::string out;
  for (const Imported& file : files) {
    for (const ImportedKey& key : file.keys) {
      if (std::ranges::count(kSections, section_of(key.path)) > 0) continue;
      throw std::logic_error("no section of a job file for " + key.path);
    }
    out += comment(fmt::format("from {} ({})", file.file, title_of(file.format)));
    for (const std::string& note : file.notes) out += comment("note: " + note);
    if (!file.ignored.empty()) out += comment("left out: " + listed_words(file.ignored));
  }
  for (const std::string_view section : kSections) {
    std::string text = section_text(files, section);
    // Parts of training stand inside it, whether it has keys of its own or not.
    const auto has_part = [&](std::string_view part) {
      return part.starts_with("training.") && !section_text(files, part).empty();
    };
    if (section == "training" && text.empty() && std::ranges::any_of(kSections, has_part))
      text = "training:\n";
    if (text.empty()) continue;
    out += (section.starts_with("training.") ? "" : "\n") + text;
  }
  return out;
}

void require_sizes(const std::vector<Imported>& files) {
  std::vector<std::string> missing;
  for (const std::string_view path : kModelSizes) {
    const bool given = std::ranges::any_of(
        files, [&](const Imported& file) { return file.find(path) != nullptr; });
    if (!given) missing.emplace_back(path.substr(path.find('.') + 1));
  }
  const auto megatron = std::ranges::find(files, ForeignFormat::kMegatron, &Imported::format);
  if (missing.empty()) return;
  std::string advice = "add it, or import the model's config.json in the same call";
  if (megatron != files.end() && missing.size() == 1 && missing[0] == "vocab_size") {
    advice = "Megatron takes the size from the tokenizer; add --vocab-size N";
  }
  throw ConfigError(fmt::format("{}: the model has no {}: {}", files.front().file,
                                listed_words(missing), advice));
}

constexpr std::string_view kImportedJob = "the imported job";

// A complaint about the job in terms of the files that it was made of, which alone the user sees.
std::string in_terms_of(const std::vector<Imported>& files, std::string_view complaint,
                        std::string_view text) {
  const auto cut_line = [](std::string_view& rest) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    return line;
  };
  std::vector<std::string_view> lines;
  while (!text.empty()) lines.push_back(cut_line(text));
  std::string out;
  const auto add = [&](std::string_view line) {
    if (!out.empty()) out += '\n';
    out += line;
  };
  const std::string head = fmt::format("{}:", kImportedJob);
  while (!complaint.empty()) {
    const std::string_view line = cut_line(complaint);
    const size_t message = line.starts_with(head) ? line.find(": ") : line.npos;
    // "the imported job:12:3: what is wrong"
    const std::string_view place =
        message == line.npos
            ? ""
            : line.substr(head.size(), std::max(message, head.size()) - head.size());
    const auto number = whole_value(place.substr(0, place.find(':')));
    if (!number || *number < 1 || static_cast<size_t>(*number) > lines.size()) {
      add(line);
      continue;
    }
    const std::string_view at = lines[static_cast<size_t>(*number) - 1];
    const std::string_view origin = at.substr(std::min(at.find("  # "), at.size()));
    const auto sets = [&](const Imported& file) {
      return std::ranges::any_of(file.keys, [&](const ImportedKey& key) {
        return origin.substr(std::min<size_t>(4, origin.size())) == one_line(key.origin) &&
               at.find(fmt::format("{}: {}", key.path.substr(key.path.rfind('.') + 1),
                                   key.value)) != at.npos;
      });
    };
    const auto file = std::ranges::find_if(files, sets);
    if (file == files.end()) {
      add(line);
      continue;
    }
    add(fmt::format("{}: {}: {}", file->file, origin.substr(4), line.substr(message + 2)));
    for (int shown = 0; shown < 2 && complaint.starts_with("  "); ++shown) cut_line(complaint);
  }
  return out;
}

void check_job(const std::vector<Imported>& files, std::vector<jobfile::JobSource> sources) {
  const std::string text = sources.back().text;
  try {
    jobfile::read_job(sources);
  } catch (const ConfigError& error) {
    throw ConfigError(in_terms_of(files, error.what(), text));
  }
}

// As many layers as the files' partition has, or one for each chunk.
std::string layers_stand_in(const std::vector<Imported>& files) {
  int64_t layers = 0;
  for (const Imported& file : files) {
    const ImportedKey* key = file.find("parallel.partition");
    if (key == nullptr) continue;
    text::Diagnostics quiet;
    const text::YamlTree list =
        text::parse_yaml(key->value, quiet.add_source("", key->value), quiet);
    for (const text::YamlNode& item : list.root.items) {
      layers += whole_value(item.text).value_or(0);
    }
  }
  int64_t chunks = 1;
  for (const std::string_view path :
       {"parallel.pipeline_parallel_degree", "parallel.virtual_pipeline_degree"}) {
    for (const Imported& file : files) {
      const ImportedKey* key = file.find(path);
      if (key == nullptr) continue;
      chunks = product_of({chunks, whole_value(key->value).value_or(1)});
      break;
    }
  }
  constexpr int64_t kMostLayers = 65536;
  if (layers == 0) layers = std::clamp<int64_t>(chunks, 1, kMostLayers);
  return fmt::format("model: {{num_layers: {}}}\n", layers);
}

}  // namespace

std::string imported_job_yaml(const std::vector<Imported>& files) {
  const std::string text = job_text(files);
  const bool has_model = std::ranges::any_of(files, [](const Imported& file) {
    return std::ranges::any_of(file.keys, [](const ImportedKey& key) {
      return key.path.starts_with("model.") && !key.path.ends_with("_dropout");
    });
  });
  if (has_model) {
    require_sizes(files);
    check_job(files,
              {{"a cluster", std::string(kClusterStandIn)}, {std::string(kImportedJob), text}});
    return text;
  }
  const bool has_experts = std::ranges::any_of(files, [](const Imported& file) {
    return file.find("parallel.expert_parallel_degree") != nullptr ||
           file.find("parallel.expert_tensor_degree") != nullptr;
  });
  check_job(files, {{"a cluster", std::string(kClusterStandIn)},
                    {"a model", std::string(kModelStandIn)},
                    {"its experts", std::string(has_experts ? kExpertsStandIn : kModelStandIn)},
                    {"its layers", layers_stand_in(files)},
                    {std::string(kImportedJob), text}});
  return comment("The imported files have no model: add one here, for example") +
         "# model:\n#   hf_config: config.json\n" + text;
}

namespace {

// The value that the last of `overrides` gives model.hf_config, if one does.
std::optional<std::string> overridden_config(const std::vector<std::string>& overrides) {
  constexpr std::string_view kKey = "model.hf_config=";
  for (auto text = overrides.rbegin(); text != overrides.rend(); ++text) {
    if (text->starts_with(kKey)) return text->substr(kKey.size());
  }
  return std::nullopt;
}

std::string config_of(const jobfile::JobSource& job) {
  text::Diagnostics quiet;
  const text::YamlTree tree =
      text::parse_yaml(job.text, quiet.add_source(job.path, job.text), quiet);
  const text::YamlEntry* model =
      tree.root.kind == text::YamlNode::Kind::kMap ? tree.root.find("model") : nullptr;
  const text::YamlEntry* config = model != nullptr ? model->value.find("hf_config") : nullptr;
  const bool named = config != nullptr && config->value.kind == text::YamlNode::Kind::kScalar;
  return named ? config->value.text : "";
}

jobfile::JobSource model_of(const std::filesystem::path& config, const std::string& written) {
  std::error_code none;
  const jobfile::NamedModel* known = jobfile::find_model(written);
  if (known != nullptr && !std::filesystem::exists(config, none)) {
    return {fmt::format("model {}", known->name), jobfile::model_section(*known)};
  }
  const Imported imported =
      import_source(jobfile::load_job_source(config.string()), ForeignFormat::kHuggingFace);
  return {config.string() + " as a job file", section_text({imported}, "model")};
}

}  // namespace

std::vector<jobfile::JobSource> with_hf_model(const jobfile::JobSource& job,
                                              const std::vector<std::string>& overrides) {
  if (const auto config = overridden_config(overrides); config && !config->empty()) {
    jobfile::JobSource model = model_of(*config, *config);
    model.replaces = "model";
    return {job, model};
  }
  std::filesystem::path path = config_of(job);
  if (path.empty()) return {job};
  if (path.is_relative()) path = std::filesystem::path(job.path).parent_path() / path;
  jobfile::JobSource model = model_of(path, config_of(job));
  // The job keeps its own name, not the config's.
  const std::string stem = std::filesystem::path(job.path).stem().string();
  const bool plain = !stem.empty() && std::ranges::all_of(stem, [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
  if (plain) model.text = fmt::format("name: \"{}\"\n", stem) + model.text;
  return {model, job};
}

}  // namespace smp::importers
