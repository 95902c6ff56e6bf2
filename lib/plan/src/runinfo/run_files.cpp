#include "smp/plan/runinfo/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <tuple>

#include "smp/plan/base/errors.h"

namespace smp::runinfo {
namespace {

constexpr std::string_view kStepPrefix = "step-";

struct NumberedSave {
  int64_t step = 0;
  int64_t again = 1;  // the how-manieth save of the step
};

std::optional<NumberedSave> save_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  NumberedSave save;
  const char* const end = name.data() + name.size();
  auto read = std::from_chars(name.data() + kStepPrefix.size(), end, save.step);
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
    read = std::from_chars(read.ptr + 1, end, save.again);
  }
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return save;
}

// Empty where there is none.
std::string first_line_of(const std::string& path) {
  std::string line;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";  // a FIFO would be waited for
  std::ifstream file(path, std::ios::binary);
  if (!std::getline(file, line)) line.clear();
  return line;
}

}  // namespace

std::optional<int64_t> step_of_checkpoint(const std::string& name) {
  const auto save = save_of(name);
  return save ? std::optional(save->step) : std::nullopt;
}

std::vector<std::string> whole_checkpoints(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::tuple<int64_t, int64_t, std::string>> found;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    const auto save = save_of(name);
    if (save && fs::exists(entry->path() / kManifestFile, ignored))
      found.emplace_back(save->step, save->again, name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [step, again, name] : found) names.push_back(std::move(name));
  return names;
}

std::optional<std::string> checkpoint_to_go_on_from(const std::string& folder) {
  namespace fs = std::filesystem;
  const std::string path = folder + "/" + kLatestFile;
  std::error_code error;
  const std::vector<std::string> whole = whole_checkpoints(folder);
  // A link that leads nowhere is not taken for none.
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) {
    if (whole.empty()) return std::nullopt;
    return whole.back();
  }
  const std::string name = first_line_of(path);
  if (std::find(whole.begin(), whole.end(), name) != whole.end()) return name;
  throw ConfigError(fmt::format(
      "{}: {}{}", path,
      name.empty() ? "cannot be read, or does not name a checkpoint"
                   : fmt::format("names '{}', which is not a complete checkpoint", name),
      whole.empty() ? "; the folder has no complete checkpoint"
                    : fmt::format("; resume from the newest complete checkpoint with --resume={}",
                                  *step_of_checkpoint(whole.back()))));
}

std::optional<std::string> best_checkpoint(const std::string& folder) {
  const std::string name = first_line_of(folder + "/" + kBestFile);
  const std::vector<std::string> whole = whole_checkpoints(folder);
  if (std::find(whole.begin(), whole.end(), name) == whole.end()) return std::nullopt;
  return name;
}

}  // namespace smp::runinfo
