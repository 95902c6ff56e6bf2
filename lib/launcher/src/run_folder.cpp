#include "smp/launcher/run_folder.h"

#include <errno.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "smp/launcher/plain_file.h"
#include "smp/plan/errors.h"

namespace smp {
namespace fs = std::filesystem;

namespace {

std::string cannot_create(const std::string& path, const std::string& why) {
  return fmt::format("cannot create run folder '{}': {}", path, why);
}

bool holds_no_file(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error))
    if (!entry.is_directory(error)) return false;
  return !error;
}

}  // namespace

RunFolder::RunFolder(const std::string& path)
    : path_(fs::absolute(path).lexically_normal().string()) {}

std::string RunFolder::default_path(const std::string& job) {
  const std::string base =
      fmt::format("runs/{}-{:%Y%m%dT%H%M%SZ}", job, fmt::gmtime(std::time(nullptr)));
  std::string path = base;
  std::error_code error;
  for (int i = 2; fs::exists(path, error); ++i) path = fmt::format("{}-{}", base, i);
  return path;
}

std::string RunFolder::why_not(const std::string& path) {
  std::error_code error;
  if (path.empty()) return cannot_create(path, "it has no name");
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_directory(status)) return cannot_create(path, "it is a file");
  if (fs::is_directory(status)) {
    const bool empty = fs::is_empty(path, error);
    if (error) return cannot_create(path, error.message());
    if (!empty)
      return fmt::format(
          "run folder '{}' is not empty: name another one with --run-dir, remove it, or go on from "
          "its checkpoint with --resume",
          path);
    if (access(path.c_str(), W_OK | X_OK) != 0) return cannot_create(path, strerror(errno));
    return "";
  }
  // The nearest parent that exists has to take a new folder.
  fs::path parent = fs::absolute(path, error).lexically_normal().parent_path();
  while (!fs::exists(parent, error) && parent.has_relative_path()) parent = parent.parent_path();
  if (!fs::is_directory(parent, error))
    return cannot_create(path, fmt::format("'{}' is a file", parent.string()));
  if (access(parent.c_str(), W_OK | X_OK) != 0) return cannot_create(path, strerror(errno));
  return "";
}

RunFolder RunFolder::create(const std::string& path) {
  if (const std::string why = why_not(path); !why.empty()) throw ConfigError(why);
  const RunFolder folder(path);
  folder.make_parts();
  return folder;
}

void RunFolder::make_parts() const {
  std::error_code error;
  for (const char* name : {"logs", "errors"}) {
    fs::create_directories(fs::path(path_) / name, error);
    if (error) throw ConfigError(cannot_create(path_, error.message()));
  }
}

std::string RunFolder::why_not_reopen(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    return fmt::format("cannot resume in run folder '{}': there is no such folder", path);
  if (!fs::exists(fs::path(path) / "checkpoints" / "latest", error))
    return fmt::format(
        "cannot resume in run folder '{}': it has no checkpoint (checkpoints/latest); start anew "
        "in "
        "another folder without --resume",
        path);
  if (access(path.c_str(), W_OK | X_OK) != 0)
    return fmt::format("cannot resume in run folder '{}': {}", path, strerror(errno));
  return "";
}

RunFolder RunFolder::reopen(const std::string& path) {
  if (const std::string why = why_not_reopen(path); !why.empty()) throw ConfigError(why);
  const RunFolder folder(path);
  folder.begin_again();
  return folder;
}

std::string RunFolder::why_not_go_on(const std::string& path) {
  std::error_code error;
  const fs::path folder(path);
  // A folder where somebody only keeps a plan is none of a run; one that was killed before it had
  // its plan has nothing but empty parts.
  const bool is_run = fs::is_directory(folder / "logs", error) &&
                      (fs::exists(folder / "plan.yaml", error) || holds_no_file(folder));
  if (!is_run) return why_not(path);
  return access(path.c_str(), W_OK | X_OK) == 0 ? "" : cannot_create(path, strerror(errno));
}

RunFolder RunFolder::go_on(const std::string& path) {
  if (const std::string why = why_not_go_on(path); !why.empty()) throw ConfigError(why);
  const RunFolder folder(path);
  folder.begin_plan_again();
  return folder;
}

void RunFolder::begin_again() const {
  std::error_code error;
  for (const char* name : {"errors", "timeline"}) fs::remove_all(fs::path(path_) / name, error);
  make_parts();
}

std::string RunFolder::latest_checkpoint() const {
  const fs::path path = fs::path(path_) / "checkpoints" / "latest";
  std::error_code error;
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) return "";
  std::string name = read_plain_file(path.string(), PATH_MAX);
  name.resize(std::min(name.find('\n'), name.size()));
  // Not taken for none: the job would begin anew over checkpoints that are there.
  if (name.empty())
    throw ConfigError(
        fmt::format("cannot read '{}', which names the last checkpoint", path.string()));
  return name;
}

std::string RunFolder::begin_plan_again() const {
  const std::string name = latest_checkpoint();
  begin_again();
  std::error_code error;
  if (name.empty()) fs::remove(fs::path(path_) / "metrics.jsonl", error);
  return name;
}

RankFiles RunFolder::files_of(int rank) const {
  RankFiles files;
  files.out_log = log(fmt::format("rank-{}.out", rank));
  files.err_log = log(fmt::format("rank-{}.err", rank));
  files.error_file = fmt::format("{}/errors/rank-{}.json", path_, rank);
  return files;
}

std::string RunFolder::host_log(int host) const {
  return log(fmt::format("algo-{}.log", host + 1));
}

}  // namespace smp
