#include "smp/tensorfiles/checkpoint/checkpoint_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "smp/plan/base/errors.h"
#include "smp/tensorfiles/checkpoint/checkpoint_shards.h"

namespace smp::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartial = ".partial";

std::string name_of_step(int64_t step) { return fmt::format("step-{:08}", step); }

std::string text_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status))  // a FIFO would be waited for
    throw CheckpointError(fmt::format("{}: expected a regular file", path));
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw CheckpointError(fmt::format("{}: cannot be read", path));
  return text;
}

// A file of another save would be taken for a part of this one by readers that look for files.
void refuse_strangers(const std::string& folder, const std::set<std::string>& own) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (own.count(name) == 0) {
      throw CheckpointError(
          fmt::format("{}/{}: unexpected file: no rank wrote it in this save", folder, name));
    }
  }
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, std::string start, files::FileCalls& calls)
    : folder_(std::move(folder)), start_(std::move(start)), calls_(calls) {}

void CheckpointStore::clean() {
  fs::create_directories(folder_);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    const bool is_left = name.ends_with(kPartial) ||
                         name.starts_with(std::string(runinfo::kLatestFile) + ".tmp-") ||
                         name.starts_with(std::string(runinfo::kBestFile) + ".tmp-");
    if (is_left) fs::remove_all(entry.path());
  }
}

std::string CheckpointStore::partial_of(int64_t step) const {
  return path_of(name_of_step(step) + (start_.empty() ? "" : "." + start_) + kPartial);
}

std::string CheckpointStore::begin(int64_t step) {
  const std::string path = partial_of(step);
  fs::create_directories(path);
  return path;
}

void CheckpointStore::commit(int64_t step, int64_t ranks, int64_t keep,
                             const runinfo::TrainingRecord& training, bool is_best) {
  const std::string partial = partial_of(step);
  Manifest manifest;
  manifest.step = step;
  manifest.training = training;
  std::set<std::string> own;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::string path = partial + "/" + part_name(rank);
    Manifest part = parse_manifest_part(path, text_of(path));
    if (part.step != step) {
      throw CheckpointError(
          fmt::format("{}: expected step {}, but the file is from step {}", path, step, part.step));
    }
    own.insert(part_name(rank));
    for (const SavedFile& file : part.files) own.insert(file.name);
    std::move(part.files.begin(), part.files.end(), std::back_inserter(manifest.files));
  }
  refuse_strangers(partial, own);
  const std::string text = to_json(manifest);
  parse_manifest(partial + "/" + runinfo::kManifestFile,
                 text);  // what is not whole is never called so
  for (int64_t rank = 0; rank < ranks; ++rank) fs::remove(partial + "/" + part_name(rank));
  files::write_file_atomically(partial + "/" + runinfo::kManifestFile, text, calls_);

  // A run that goes on from an earlier step comes by its later ones again.
  std::string name = name_of_step(step);
  for (int again = 2; fs::exists(path_of(name)); ++again) {
    name = fmt::format("{}-{}", name_of_step(step), again);
  }
  if (calls_.rename(partial.c_str(), path_of(name).c_str()) != 0) {
    throw CheckpointError(fmt::format("{}: cannot be renamed to {}: {}", partial, name,
                                      std::generic_category().message(errno)));
  }
  files::sync_folder(folder_, calls_);
  files::write_file_atomically(path_of(runinfo::kLatestFile), name + "\n", calls_);
  if (is_best) set_best(name);

  const std::vector<std::string> all = list();
  const std::string best = runinfo::best_checkpoint(folder_).value_or("");
  const auto spare = static_cast<int64_t>(all.size()) - keep;
  for (int64_t i = 0; i < spare; ++i) {
    const std::string& old = all[static_cast<size_t>(i)];
    if (old != name && old != best) remove(old);
  }
}

void CheckpointStore::set_best(const std::string& name) {
  if (!name.empty()) {
    files::write_file_atomically(path_of(runinfo::kBestFile), name + "\n", calls_);
  } else if (fs::remove(path_of(runinfo::kBestFile))) {
    files::sync_folder(folder_, calls_);
  }
}

// Under another name first: what is half removed is no whole checkpoint any more.
void CheckpointStore::remove(const std::string& name) {
  const std::string doomed = path_of(name + kPartial);
  if (calls_.rename(path_of(name).c_str(), doomed.c_str()) == 0) fs::remove_all(doomed);
}

std::string CheckpointStore::latest() const {
  if (const auto name = runinfo::checkpoint_to_go_on_from(folder_)) return *name;
  throw ConfigError(fmt::format("{}: no checkpoint in this folder", folder_));
}

std::string CheckpointStore::of_step(int64_t step) const {
  std::vector<int64_t> steps;
  std::string found;
  for (const std::string& name : list()) {
    steps.push_back(*runinfo::step_of_checkpoint(name));
    if (steps.back() == step) found = name;
  }
  if (!found.empty()) return found;
  throw ConfigError(
      fmt::format("{}: no checkpoint of step {}; the folder has checkpoints of steps [{}]", folder_,
                  step, fmt::join(steps, ", ")));
}

std::optional<std::string> CheckpointStore::before(const std::string& name) const {
  std::optional<std::string> older;
  for (const std::string& one : list()) {
    if (one == name) return older;
    older = one;
  }
  return std::nullopt;
}

}  // namespace smp::checkpoint
