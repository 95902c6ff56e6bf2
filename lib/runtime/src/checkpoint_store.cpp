#include "smp/runtime/checkpoint_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "smp/runtime/checkpoint_shards.h"

namespace smp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kLatest = "latest";
constexpr const char* kPartial = ".partial";
constexpr std::string_view kStep = "step-";

std::string name_of_step(int64_t step) { return fmt::format("{}{:08}", kStep, step); }

std::string text_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))  // a FIFO would be waited for
    throw CheckpointError(fmt::format("{}: is no plain file", path));
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw CheckpointError(fmt::format("{}: cannot be read", path));
  return text;
}

}  // namespace

std::optional<int64_t> step_of_checkpoint(const std::string& name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  int64_t step = 0, again = 0;
  const char* const end = name.data() + name.size();
  auto read = std::from_chars(name.data() + kStep.size(), end, step);
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
    read = std::from_chars(read.ptr + 1, end, again);
  }
  return read.ec == std::errc() && read.ptr == end ? std::optional(step) : std::nullopt;
}

CheckpointStore::CheckpointStore(std::string folder, FileCalls& calls)
    : folder_(std::move(folder)), calls_(calls) {}

void CheckpointStore::clean() {
  fs::create_directories(folder_);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kPartial) || name.starts_with(std::string(kLatest) + ".tmp-")) {
      fs::remove_all(entry.path());
    }
  }
}

std::string CheckpointStore::begin(int64_t step) {
  const std::string path = path_of(name_of_step(step) + kPartial);
  fs::create_directories(path);
  return path;
}

void CheckpointStore::commit(int64_t step, int64_t ranks, int64_t keep) {
  const std::string partial = path_of(name_of_step(step) + kPartial);
  Manifest manifest;
  manifest.step = step;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::string path = partial + "/" + part_name(rank);
    Manifest part = parse_manifest_part(path, text_of(path));
    if (part.step != step) {
      throw CheckpointError(fmt::format("{}: is of step {}, not {}", path, part.step, step));
    }
    std::move(part.files.begin(), part.files.end(), std::back_inserter(manifest.files));
  }
  const std::string text = to_json(manifest);
  parse_manifest(partial + "/" + kManifest, text);  // what is not whole is never called so
  for (int64_t rank = 0; rank < ranks; ++rank) fs::remove(partial + "/" + part_name(rank));
  write_file_atomically(partial + "/" + kManifest, text, calls_);

  // A run that goes on from an earlier step comes by its later ones again.
  std::string name = name_of_step(step);
  for (int again = 2; fs::exists(path_of(name)); ++again) {
    name = fmt::format("{}-{}", name_of_step(step), again);
  }
  if (calls_.rename(partial.c_str(), path_of(name).c_str()) != 0) {
    throw CheckpointError(fmt::format("{}: cannot be renamed to {}: {}", partial, name,
                                      std::generic_category().message(errno)));
  }
  sync_folder(folder_, calls_);
  write_file_atomically(path_of(kLatest), name + "\n", calls_);

  const std::vector<std::string> all = list();
  const auto spare = static_cast<int64_t>(all.size()) - keep;
  for (int64_t i = 0; i < spare; ++i) {
    if (all[static_cast<size_t>(i)] != name) remove(all[static_cast<size_t>(i)]);
  }
}

// Under another name first: what is half removed is no whole checkpoint any more.
void CheckpointStore::remove(const std::string& name) {
  const std::string doomed = path_of(name + kPartial);
  if (calls_.rename(path_of(name).c_str(), doomed.c_str()) == 0) fs::remove_all(doomed);
}

std::vector<std::string> CheckpointStore::list() const {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, none)) {
    const std::string name = entry.path().filename().string();
    const fs::path manifest = entry.path() / kManifest;
    if (step_of_checkpoint(name) && fs::exists(manifest)) {
      found.emplace_back(fs::last_write_time(manifest), name);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [time, name] : found) names.push_back(std::move(name));
  return names;
}

std::string CheckpointStore::latest() const {
  const std::string path = path_of(kLatest);
  if (!fs::exists(path)) {
    throw CheckpointError(fmt::format("{}: there is no checkpoint", folder_));
  }
  std::string name = text_of(path);
  while (name.ends_with('\n')) name.pop_back();
  if (!step_of_checkpoint(name) || !fs::exists(path_of(name) + "/" + kManifest)) {
    throw CheckpointError(fmt::format("{}: names '{}', which is no whole checkpoint", path, name));
  }
  return name;
}

std::string CheckpointStore::of_step(int64_t step) const {
  std::vector<int64_t> steps;
  std::string found;
  for (const std::string& name : list()) {
    steps.push_back(*step_of_checkpoint(name));
    if (steps.back() == step) found = name;
  }
  if (!found.empty()) return found;
  throw CheckpointError(
      fmt::format("{}: there is no checkpoint of step {}; there are those of [{}]", folder_, step,
                  fmt::join(steps, ", ")));
}

std::optional<std::string> CheckpointStore::before(const std::string& name) const {
  std::optional<std::string> older;
  for (const std::string& one : list()) {
    if (one == name) return older;
    older = one;
  }
  return std::nullopt;
}

}  // namespace smp
