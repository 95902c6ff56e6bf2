#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "importers/absent_features.h"
#include "importers/foreign_keys.h"
#include "importers/import_world.h"
#include "importers/trainer_words.h"
#include "smp/interchange/importers/import.h"
#include "smp/plan/base/errors.h"

// Files that describe one job together.
namespace smp::importers {
namespace {

// The same path twice with another value: within one file the last one counts only if equal.
void check_agreement(const std::vector<Imported>& files) {
  std::map<std::string, std::pair<const ImportedKey*, const Imported*>> seen;
  for (const Imported& file : files) {
    for (const ImportedKey& key : file.keys) {
      const auto [first, is_new] = seen.try_emplace(key.path, &key, &file);
      const ImportedKey& other = *first->second.first;
      // What a program's files have no other word for: two of them are no disagreement.
      if (is_new || other.value == key.value || key.path == "model.name") continue;
      throw ConfigError(fmt::format("{}: {} gives {}: {}, but {} of {} gives {}", file.file,
                                    key.origin, key.path, key.value, other.origin,
                                    first->second.second->file, other.value));
    }
  }
}

// A default of one program yields to what another file says, and to the default of a program before
// it. Where one counts the samples of a batch, the microbatches follow.
void drop_assumed(std::vector<Imported>& files) {
  const auto said = [&](std::string_view path) {
    return std::ranges::any_of(files, [&](const Imported& file) {
      return std::ranges::any_of(
          file.keys, [&](const ImportedKey& key) { return key.path == path && !key.assumed; });
    });
  };
  const bool has_batch = said("training.global_batch");
  std::set<std::string> assumed;
  for (Imported& file : files) {
    std::erase_if(file.keys, [&](const ImportedKey& key) {
      return key.assumed && (said(key.path) || assumed.contains(key.path) ||
                             (has_batch && key.path == "training.microbatches"));
    });
    for (const ImportedKey& key : file.keys) {
      if (key.assumed) assumed.insert(key.path);
    }
  }
}

int reading_order(ForeignFormat format) {
  if (format == ForeignFormat::kHuggingFace) return 0;
  const bool names_model = format == ForeignFormat::kLlamaFactory ||
                           format == ForeignFormat::kAxolotl || format == ForeignFormat::kAutomodel;
  return names_model ? 1 : 2;
}

// The DeepSpeed file that a configuration of LLaMA-Factory or axolotl names, if it is there and no
// other is given.
void add_named_deepspeed(std::vector<std::pair<ForeignFormat, jobfile::JobSource>>& files) {
  std::vector<std::string> found;
  for (const auto& [format, source] : files) {
    if (format == ForeignFormat::kDeepSpeed) return;
    if (format != ForeignFormat::kLlamaFactory && format != ForeignFormat::kAxolotl) continue;
    text::Diagnostics quiet;
    const text::YamlNode root =
        text::parse_yaml(source.text, quiet.add_source(source.path, source.text), quiet).root;
    const text::YamlEntry* named = root.find("deepspeed");
    if (named == nullptr || named->value.kind != NodeKind::kScalar) continue;
    const std::string path = deepspeed_file(source.path, named->value.text);
    if (!path.empty() && std::ranges::count(found, path) == 0) found.push_back(path);
  }
  for (const std::string& path : found) {
    files.emplace_back(ForeignFormat::kDeepSpeed, jobfile::load_job_source(path));
  }
}

}  // namespace

std::vector<Imported> import_sources(const std::vector<jobfile::JobSource>& sources,
                                     std::optional<ForeignFormat> forced,
                                     const ImportContext& context) {
  std::vector<std::pair<ForeignFormat, jobfile::JobSource>> ordered;
  for (const jobfile::JobSource& source : sources) {
    ordered.emplace_back(forced ? *forced : recognise(source), source);
  }
  add_named_deepspeed(ordered);
  // The model first: other files count in its layers.
  std::ranges::stable_sort(ordered, {}, [](const auto& item) { return reading_order(item.first); });
  ImportContext known = context;
  known.has_deepspeed = std::ranges::any_of(
      ordered, [](const auto& item) { return item.first == ForeignFormat::kDeepSpeed; });
  std::vector<Imported> out;
  const auto learn = [&](const Imported& file, std::string_view path, std::optional<int64_t>& to) {
    const ImportedKey* key = file.find(path);
    if (key != nullptr && !to) to = whole_value(key->value);
  };
  for (const auto& [format, source] : ordered) {
    out.push_back(import_source(source, format, known));
    learn(out.back(), "model.num_layers", known.num_layers);
    learn(out.back(), "model.hidden_size", known.hidden_size);
    learn(out.back(), "model.max_positions", known.max_positions);
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
  drop_assumed(out);
  turn_off_absent(out);
  check_agreement(out);
  check_world(out);
  return out;
}

}  // namespace smp::importers
