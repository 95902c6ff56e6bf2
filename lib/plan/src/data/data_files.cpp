#include "smp/plan/data/data_files.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "smp/plan/base/errors.h"
#include "smp/plan/files/git_lfs.h"
#include "smp/plan/files/unreadable.h"

namespace smp::data {
namespace {

namespace fs = std::filesystem;

std::string python_stdlib_folder() {
  constexpr const char* kCommand =
      "python3 -c 'import sysconfig; print(sysconfig.get_path(\"stdlib\"))' 2>/dev/null";
  std::string text;
  int status = -1;
  if (std::FILE* pipe = ::popen(kCommand, "re")) {
    std::array<char, 4096> buffer{};
    while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
    status = ::pclose(pipe);
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (status != 0 || text.empty()) {
    throw ConfigError(
        "training.data.path: python-stdlib needs python3 on PATH, but python3 did not run: install "
        "it, or give a file or a folder of text");
  }
  return text;
}

bool has_suffix(const std::string& name, const std::vector<std::string>& suffixes) {
  return suffixes.empty() || std::any_of(suffixes.begin(), suffixes.end(), [&](const auto& suffix) {
           return name.ends_with(suffix);
         });
}

// Adds a file that exists; an empty one is left out.
void add_file(DataFiles& found, const fs::path& path, const std::string& key) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error || ::access(path.c_str(), R_OK) != 0) {
    files::throw_unreadable(fmt::format("{}: cannot read {}", key, path.string()),
                            error ? error.value() : errno);
  }
  if (const std::string lfs = files::git_lfs_complaint_of(path.string()); !lfs.empty()) {
    throw ConfigError(fmt::format("{}: {}: {}", key, path.string(), lfs));
  }
  if (bytes > 0) found.files.push_back({path.string(), static_cast<int64_t>(bytes)});
}

bool left_out(const fs::directory_entry& entry, bool is_stdlib) {
  const std::string name = entry.path().filename().string();
  return name.starts_with('.') ||
         (is_stdlib && (name == "site-packages" || name == "dist-packages"));
}

void add_folder(DataFiles& found, const fs::path& folder, const std::vector<std::string>& suffixes,
                bool is_stdlib, const std::string& key) {
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;  // of a link that leads nowhere: no regular file
    if (left_out(*entry, is_stdlib)) {
      if (entry->is_directory(ignored)) entry.disable_recursion_pending();
    } else if (entry->is_regular_file(ignored) &&
               has_suffix(entry->path().filename().string(), suffixes)) {
      add_file(found, entry->path(), key);
    }
  }
  if (error)
    files::throw_unreadable(fmt::format("{}: cannot list {}", key, folder.string()), error.value());
  std::sort(found.files.begin(), found.files.end(),
            [](const DataFile& a, const DataFile& b) { return a.path < b.path; });
}

std::string list_of(const std::vector<std::string>& suffixes) {
  return fmt::format("{}", fmt::join(suffixes, ", "));
}

}  // namespace

DataFiles find_data_files(const TrainingSpec& training, const std::string& key) {
  if (training.data_path.empty()) {
    throw ConfigError(
        fmt::format("{}: no training data given: name a file or a folder of text or tokens, or "
                    "python-stdlib",
                    key));
  }
  const bool is_stdlib = training.data_path == kPythonStdlib;
  const std::vector<std::string> suffixes =
      is_stdlib ? std::vector<std::string>{".py"} : training.data_suffixes;
  DataFiles found;
  found.path = is_stdlib ? python_stdlib_folder() : training.data_path;

  std::error_code error;
  const fs::file_status status = fs::status(found.path, error);
  if (status.type() == fs::file_type::not_found) {
    throw ConfigError(fmt::format("{}: {} does not exist", key, found.path));
  }
  if (error)
    files::throw_unreadable(fmt::format("{}: cannot read {}", key, found.path), error.value());
  if (fs::is_directory(status)) {
    add_folder(found, found.path, suffixes, is_stdlib, key);
  } else {
    add_file(found, found.path, key);
  }
  if (found.files.empty()) {
    throw ConfigError(fs::is_directory(status) && !suffixes.empty()
                          ? fmt::format("{}: {} holds no text in files ending in {}", key,
                                        found.path, list_of(suffixes))
                          : fmt::format("{}: {} holds no text", key, found.path));
  }
  found.total_bytes = static_cast<int64_t>(found.files.size()) - 1;
  for (const DataFile& file : found.files) found.total_bytes += file.bytes;
  return found;
}

int64_t sequences_per_sample(const ModelSpec& model) {
  return model.stack == Stack::kEncoderDecoder ? 2 : 1;
}

int64_t evaluation_samples(const TrainingSpec& training) {
  const EvaluationSpec& evaluation = training.evaluation;
  if (evaluation.every_steps == 0) return 0;
  const int64_t batch = training.global_batch.value_or(1);
  const int64_t samples = evaluation.samples.value_or(batch);
  if (samples % batch != 0 && !evaluation.pad_last_batch) {
    const int64_t above = samples / batch + 1;
    throw ConfigError(
        fmt::format("training.evaluation.samples ({}) is not a multiple of global_batch ({}): the "
                    "last batch has {} of {} samples; write {} samples, or pad_last_batch: true",
                    samples, batch, samples % batch, batch, above * batch));
  }
  return samples;
}

int64_t held_out_samples(const TrainingSpec& training) {
  const bool has_own_part = !training.data_split.empty() || !training.evaluation.sets.empty();
  return has_own_part ? 0 : evaluation_samples(training);
}

void check_byte_vocabulary(const ModelSpec& model) {
  if (model.operators.empty() && model.vocab_size < 256) {
    throw ConfigError(fmt::format(
        "model.vocab_size: {} is too small for byte tokens: give at least 256", model.vocab_size));
  }
}

}  // namespace smp::data
