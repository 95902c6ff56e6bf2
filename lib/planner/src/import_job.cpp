#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "foreign_keys.h"
#include "smp/plan/errors.h"
#include "smp/planner/import.h"

// Imported keys as a job file, and config.json as the model of one.
namespace smp {
namespace {

constexpr std::array<std::string_view, 6> kSections = {
    "model", "cluster", "training", "training.optimizer", "training.loss_scale", "parallel"};
constexpr std::array<std::string_view, 4> kSizeKeys = {"model.num_layers", "model.hidden_size",
                                                       "model.num_heads", "model.vocab_size"};

// What stands in where no file gives it, to have the rest read: a model, and a cluster that has
// every precision.
constexpr std::string_view kModelStandIn =
    "model: {num_layers: 1, hidden_size: 1, num_heads: 1, vocab_size: 2}\n";
constexpr std::string_view kExpertsStandIn = "model: {num_experts: 64, experts_per_token: 1}\n";
constexpr std::string_view kClusterStandIn =
    "cluster: {has_bf16: true, has_fp16: true, fp8_flops_per_s: 1}\n";

std::string_view section_of(std::string_view path) { return path.substr(0, path.rfind('.')); }

// The same path twice with another value: within one file the last one counts only if equal.
void check_agreement(const std::vector<Imported>& files) {
  std::map<std::string, std::pair<const ImportedKey*, const Imported*>> seen;
  for (const Imported& file : files) {
    for (const ImportedKey& key : file.keys) {
      const auto [first, is_new] = seen.try_emplace(key.path, &key, &file);
      const ImportedKey& other = *first->second.first;
      // What a program's files have no other word for: two of them are no disagreement.
      if (is_new || other.value == key.value || key.path == "model.name") continue;
      throw ConfigError(fmt::format("{}: {} says {}: {}, but {} of {} says {}", file.file,
                                    key.origin, key.path, key.value, other.origin,
                                    first->second.second->file, other.value));
    }
  }
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ", ";
    out += word;
  }
  return out;
}

// One comment, wrapped.
std::string comment(std::string_view text) {
  constexpr size_t kWidth = 96;
  std::string out, line = "#";
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (line.size() + 1 + end > kWidth && line.size() > 3) {
      out += line + "\n";
      line = "#  ";
    }
    line += " ";
    for (const char c : text.substr(0, end)) line += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + line + "\n";
}

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
    out += comment(fmt::format("from {} ({})", file.file, title_of(file.format)));
    for (const std::string& note : file.notes) out += comment("note: " + note);
    if (!file.ignored.empty()) out += comment("left out: " + joined(file.ignored));
  }
  for (const std::string_view section : kSections) {
    std::string text = section_text(files, section);
    // Parts of training stand inside it, whether it has keys of its own or not.
    if (section == "training" && text.empty() &&
        (!section_text(files, "training.optimizer").empty() ||
         !section_text(files, "training.loss_scale").empty())) {
      text = "training:\n";
    }
    if (text.empty()) continue;
    out += (section.starts_with("training.") ? "" : "\n") + text;
  }
  return out;
}

void require_sizes(const std::vector<Imported>& files) {
  std::vector<std::string> missing;
  for (const std::string_view path : kSizeKeys) {
    const bool given = std::ranges::any_of(
        files, [&](const Imported& file) { return file.find(path) != nullptr; });
    if (!given) missing.emplace_back(path.substr(path.find('.') + 1));
  }
  const auto megatron = std::ranges::find(files, ForeignFormat::kMegatron, &Imported::format);
  if (missing.empty()) return;
  std::string advice = "add it, or import the model's config.json in the same call";
  if (megatron != files.end() && missing.size() == 1 && missing[0] == "vocab_size") {
    advice = "a Megatron line leaves it to the tokenizer; add --vocab-size N";
  }
  throw ConfigError(
      fmt::format("{}: the model lacks {}: {}", files.front().file, joined(missing), advice));
}

}  // namespace

std::vector<Imported> import_sources(const std::vector<JobSource>& sources,
                                     std::optional<ForeignFormat> forced,
                                     const ImportContext& context) {
  std::vector<std::pair<ForeignFormat, const JobSource*>> ordered;
  for (const JobSource& source : sources) {
    ordered.emplace_back(forced ? *forced : recognise(source), &source);
  }
  // The model first: other files count in its layers.
  std::ranges::stable_sort(ordered, {}, [](const auto& item) {
    return item.first == ForeignFormat::kHuggingFace ? 0 : 1;
  });
  ImportContext known = context;
  std::vector<Imported> out;
  const auto learn = [&](const Imported& file, std::string_view path, std::optional<int64_t>& to) {
    const ImportedKey* key = file.find(path);
    if (key != nullptr && !to) to = whole_value(key->value);
  };
  for (const auto& [format, source] : ordered) {
    out.push_back(import_source(*source, format, known));
    learn(out.back(), "model.num_layers", known.num_layers);
    learn(out.back(), "cluster.hosts", known.hosts);
    learn(out.back(), "cluster.processes_per_host", known.processes_per_host);
  }
  if (out.size() > 0 && (context.hosts || context.processes_per_host)) {
    const auto add = [&](const char* path, std::optional<int64_t> value, const char* origin) {
      if (!value) return;
      out.front().keys.push_back({path, fmt::format("{}", *value), origin});
    };
    add("cluster.hosts", context.hosts, "--hosts");
    add("cluster.processes_per_host", context.processes_per_host, "--processes-per-host");
  }
  check_agreement(out);
  return out;
}

std::string imported_job_yaml(const std::vector<Imported>& files) {
  const std::string text = job_text(files);
  const bool has_model = std::ranges::any_of(files, [](const Imported& file) {
    return std::ranges::any_of(file.keys, [](const ImportedKey& key) {
      return key.path.starts_with("model.") && !key.path.ends_with("_dropout");
    });
  });
  if (has_model) {
    require_sizes(files);
    read_job({{"a cluster", std::string(kClusterStandIn)}, {"the imported job", text}});
    return text;
  }
  const bool has_experts = std::ranges::any_of(files, [](const Imported& file) {
    return file.find("parallel.expert_parallel_degree") != nullptr;
  });
  read_job({{"a cluster", std::string(kClusterStandIn)},
            {"a model", std::string(kModelStandIn)},
            {"its experts", std::string(has_experts ? kExpertsStandIn : kModelStandIn)},
            {"the imported job", text}});
  return comment("There is no model in these files: add one here, as in") +
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

std::string config_of(const JobSource& job) {
  Diagnostics quiet;
  const YamlTree tree = parse_yaml(job.text, quiet.add_source(job.path, job.text), quiet);
  const YamlEntry* model =
      tree.root.kind == YamlNode::Kind::kMap ? tree.root.find("model") : nullptr;
  const YamlEntry* config = model != nullptr ? model->value.find("hf_config") : nullptr;
  const bool named = config != nullptr && config->value.kind == YamlNode::Kind::kScalar;
  return named ? config->value.text : "";
}

JobSource model_of(const std::filesystem::path& config) {
  const Imported imported =
      import_source(load_job_source(config.string()), ForeignFormat::kHuggingFace);
  return {config.string() + " as a job file", section_text({imported}, "model")};
}

}  // namespace

std::vector<JobSource> with_hf_model(const JobSource& job,
                                     const std::vector<std::string>& overrides) {
  if (const auto config = overridden_config(overrides); config && !config->empty()) {
    JobSource model = model_of(*config);
    model.replaces = "model";
    return {job, model};
  }
  std::filesystem::path path = config_of(job);
  if (path.empty()) return {job};
  if (path.is_relative()) path = std::filesystem::path(job.path).parent_path() / path;
  JobSource model = model_of(path);
  // The job keeps its own name, not the config's.
  const std::string stem = std::filesystem::path(job.path).stem().string();
  const bool plain = !stem.empty() && std::ranges::all_of(stem, [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-';
  });
  if (plain) model.text = fmt::format("name: \"{}\"\n", stem) + model.text;
  return {model, job};
}

}  // namespace smp
