#include "smp/plan/runinfo/training_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "jobfile/field_table.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/data/token_data.h"
#include "smp/plan/model/operators.h"
#include "text/scalar.h"

namespace smp::runinfo {
namespace {

constexpr size_t kListedFiles = 8;
constexpr const char* kHeldOut = "training.evaluation.samples";
constexpr const char* kSourceList = "training.data.sources";
constexpr const char* kLossMask = "training.data.loss_mask";

constexpr std::array kChangeable = {
    ChangeableKey{"name", "a name for people"},
    ChangeableKey{"model.name", "a name for people"},
    ChangeableKey{"model.hf_config", "the sizes that it gave are compared instead"},
    ChangeableKey{"cluster", "the cluster does not change the training"},
    ChangeableKey{"parallel", "the layout does not change the training"},
    ChangeableKey{"training.micro_batch", "part of the layout; global_batch must stay"},
    ChangeableKey{"training.microbatches", "part of the layout; global_batch must stay"},
    ChangeableKey{"training.max_tokens_per_batch", "only a limit"},
    ChangeableKey{"training.attention", "results are equal up to rounding"},
    ChangeableKey{"training.fused_loss", "results are equal up to rounding"},
    ChangeableKey{"training.fused_optimizer", "results are equal up to rounding"},
    ChangeableKey{"training.compiled", "results are equal up to rounding"},
    ChangeableKey{"training.deterministic", "results are equal up to rounding"},
    ChangeableKey{"training.steps", "changes only when the run ends"},
    ChangeableKey{"training.init_from", "read only before the first step"},
    ChangeableKey{"training.tokenizer", "copied only at the end"},
    ChangeableKey{"training.data.path", "the files themselves are compared instead"},
    ChangeableKey{"training.data.suffixes", "the files themselves are compared instead"},
    ChangeableKey{"training.data.tokens", "bytes are the tokens with the key and without it"},
    ChangeableKey{"training.save_weights_as", "changes only the type of the saved weights"},
    ChangeableKey{"training.optimizer.schedule", "applies to the steps to come"},
    ChangeableKey{"training.optimizer.learning_rate", "applies to the steps to come"},
    ChangeableKey{"training.optimizer.min_learning_rate", "applies to the steps to come"},
    ChangeableKey{"training.optimizer.warmup_steps", "applies to the steps to come"},
    ChangeableKey{"training.optimizer.decay_steps", "applies to the steps to come"},
    ChangeableKey{"training.checkpoint", "changes only when the run saves"},
    ChangeableKey{"training.trace", "changes only which steps are recorded"},
    ChangeableKey{"training.evaluation.every_steps",
                  "changes only when the loss is evaluated; the held-out samples stay held out"},
    ChangeableKey{"training.evaluation.pad_last_batch", "changes only the evaluation"},
    ChangeableKey{"training.evaluation.sets", "changes only the evaluation"},
    ChangeableKey{"training.evaluation.keep_best", "applies to the evaluations to come"},
    ChangeableKey{"training.evaluation.patience", "changes only when the run ends"},
    ChangeableKey{"training.evaluation.min_improvement", "changes only when the run ends"},
    ChangeableKey{"training.metrics", "changes only where each step's numbers are written"},
};

bool may_change(std::string_view path) {
  return std::any_of(kChangeable.begin(), kChangeable.end(), [&](const ChangeableKey& key) {
    return path == key.path ||
           (path.starts_with(key.path) && path.substr(key.path.size()).starts_with('.'));
  });
}

using Settings = std::map<std::string_view, std::string_view>;

Settings settings_by_path(const TrainingRecord& record) {
  return {record.job.begin(), record.job.end()};
}

std::string default_of(std::string_view path) {
  static const JobSpec kDefaults;
  if (path == kLossMask) return "false";
  const jobfile::Field* field = jobfile::find_field(path);
  return field == nullptr ? "" : jobfile::value_text(*field, kDefaults).value_or("");
}

std::string value_in_words(const Settings& settings, std::string_view path) {
  const auto found = settings.find(path);
  return found == settings.end() ? "not" : std::string(found->second);
}

// Keys in the order of the table, then those that this version does not know.
std::vector<std::string> paths_of(const Settings& checkpoint, const Settings& job) {
  std::vector<std::string> paths;
  const auto add = [&](const std::string& path) {
    const bool said = checkpoint.count(path) != 0 || job.count(path) != 0;
    if (said && std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
  };
  for (const jobfile::Field& field : jobfile::job_fields()) add(jobfile::path_of(field));
  for (const auto& [path, value] : checkpoint) add(std::string(path));
  return paths;
}

std::string file_text(const files::FileIdentity& file) {
  return fmt::format("{} of {} bytes", file.name, file.bytes);
}

// Content in the order of reading: files may have other names and lie elsewhere.
void add_data_changes(const std::vector<files::FileIdentity>& checkpoint,
                      const std::vector<files::FileIdentity>& job,
                      std::vector<std::string>& changes) {
  const bool alike = checkpoint.size() == job.size();  // else other parts were looked at
  if (!alike) {
    changes.push_back(fmt::format("training.data: {} files in the checkpoint, {} in this job",
                                  checkpoint.size(), job.size()));
  }
  size_t differing = 0;
  for (size_t i = 0; i < std::min(checkpoint.size(), job.size()); ++i) {
    const files::FileIdentity &there = checkpoint[i], &here = job[i];
    if (there.bytes == here.bytes && (!alike || there.sampled_hash == here.sampled_hash)) continue;
    if (++differing > kListedFiles) continue;
    changes.push_back(
        there.bytes == here.bytes
            ? fmt::format("training.data: the content of {} differs from {} in the checkpoint",
                          file_text(here), there.name)
            : fmt::format("training.data: {} in the checkpoint, {} in this job", file_text(there),
                          file_text(here)));
  }
  if (differing > kListedFiles) {
    changes.push_back(fmt::format("training.data: and {} files more", differing - kListedFiles));
  }
}

// The shares of a mixture. The files themselves are compared, wherever they lie.
std::string shares_text(const std::vector<MixtureSource>& sources) {
  std::vector<std::string> weights;
  for (const MixtureSource& source : sources) weights.push_back(text::number_text(source.weight));
  return fmt::format("[{}]", fmt::join(weights, ", "));
}

}  // namespace

std::vector<files::FileIdentity> identify_data(const JobSpec& job) {
  if (!model::is_list(job.model)) return data::TokenData(job).files();
  const std::string& path = job.training.data_path;
  std::vector<files::FileIdentity> data;
  for (files::KnownFile& file : files::look_at_files(path, {path}))
    data.push_back(std::move(file.identity));
  return data;
}

TrainingRecord record_training(const JobSpec& job, std::vector<files::FileIdentity> data) {
  TrainingRecord record;
  record.data = std::move(data);
  for (const jobfile::Field& field : jobfile::job_fields()) {
    if (field.rule.condition.holds && !field.rule.condition.holds(job)) continue;
    if (jobfile::path_of(field) == kHeldOut) continue;
    if (jobfile::path_of(field) == kSourceList) {
      record.job.emplace_back(kSourceList, shares_text(job.training.data_sources));
      continue;
    }
    // Unsaid, all tokens count.
    if (jobfile::path_of(field) == kLossMask && !job.training.data_loss_mask) {
      record.job.emplace_back(kLossMask, "false");
      continue;
    }
    if (auto text = jobfile::value_text(field, job))
      record.job.emplace_back(jobfile::path_of(field), *text);
  }
  // With evaluation or without: what is held out is not trained on.
  record.job.emplace_back(kHeldOut, fmt::format("{}", data::held_out_samples(job.training)));
  return record;
}

std::span<const ChangeableKey> changeable_keys() { return kChangeable; }

std::vector<std::string> training_changes(const TrainingRecord& checkpoint,
                                          const TrainingRecord& job) {
  const Settings there = settings_by_path(checkpoint), here = settings_by_path(job);
  std::vector<std::string> changes;
  for (const std::string& path : paths_of(there, here)) {
    if (may_change(path)) continue;
    const auto value_in = [&](const Settings& settings) {
      const auto found = settings.find(path);
      return found == settings.end() ? default_of(path) : std::string(found->second);
    };
    if (value_in(there) == value_in(here)) continue;
    changes.push_back(fmt::format("{}: {} in the checkpoint, {} in this job", path,
                                  value_in_words(there, path), value_in_words(here, path)));
  }
  add_data_changes(checkpoint.data, job.data, changes);
  return changes;
}

void check_same_training(const std::string& checkpoint_path, const TrainingRecord& checkpoint,
                         const TrainingRecord& job) {
  const std::vector<std::string> changes = training_changes(checkpoint, job);
  if (changes.empty()) return;
  throw ConfigError(fmt::format(
      "{}: the checkpoint belongs to another training:\n  {}\nrestore these values, or start a new "
      "run in another folder without --resume; docs/checkpoints.md lists the keys that may change",
      checkpoint_path, fmt::join(changes, "\n  ")));
}

}  // namespace smp::runinfo
