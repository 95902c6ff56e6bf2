#include "smp/launcher/run/run_folder.h"

#include <errno.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "smp/plan/base/errors.h"
#include "smp/plan/runinfo/run_files.h"

namespace smp::run {
namespace fs = std::filesystem;

namespace {

constexpr const char* kLogs = "logs";

std::string cannot_create(const std::string& path, const std::string& why) {
  return fmt::format("cannot create run folder '{}': {}", path, why);
}

std::string cannot_resume(const std::string& path, const std::string& why) {
  return fmt::format("cannot resume in run folder '{}': {}", path, why);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

bool is_dangling(const fs::path& path) {
  std::error_code error;
  return is_there(path) && !fs::exists(path, error);
}

std::string dangling(const fs::path& link) {
  std::error_code error;
  return fmt::format("'{}' is a link to '{}', which does not exist", link.string(),
                     fs::read_symlink(link, error).string());
}

bool is_silent(const fs::path& logs) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(logs, error))
    if (entry.file_size(error) != 0 || error) return false;
  return true;
}

// No run has begun in it: it is empty, or ranks that could not be started, or never were ready,
// have left there what smp-launch itself writes, and nothing else.
bool is_unused(const fs::path& folder) {
  constexpr std::array<std::string_view, 9> kOfStart = {
      RunLock::kFile, runinfo::kPlanToStart, kLogs,          "errors",     "timeline",
      "status.json",  "status.json.new",     "events.jsonl", "usage.jsonl"};
  const bool never_ready = is_there(folder / runinfo::kPlanToStart) || is_silent(folder / kLogs);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == RunLock::kFile) continue;
    if (!never_ready || std::find(kOfStart.begin(), kOfStart.end(), name) == kOfStart.end())
      return false;
  }
  return true;
}

bool has_run(const fs::path& folder) {
  return is_there(folder / runinfo::kPlanFile) && is_there(folder / kLogs);
}

// Without a look at the lock.
std::string why_not_new(const std::string& path) {
  std::error_code error;
  if (path.empty()) return cannot_create(path, "the name is empty");
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_directory(status)) return cannot_create(path, "it is a file");
  if (fs::is_directory(status)) {
    (void)fs::is_empty(path, error);
    if (error) return cannot_create(path, error.message());
    if (!is_unused(path))
      return fmt::format(
          "run folder '{}' is not empty: give another folder with --run-dir, remove this folder, "
          "or resume from its checkpoint with --resume",
          path);
    if (access(path.c_str(), W_OK | X_OK) != 0) return cannot_create(path, strerror(errno));
    return "";
  }
  // The nearest parent that exists has to take a new folder.
  fs::path parent = fs::absolute(path, error).lexically_normal();
  while (!fs::exists(parent, error) && parent.has_relative_path()) {
    if (is_dangling(parent)) return cannot_create(path, dangling(parent));
    parent = parent.parent_path();
  }
  if (!fs::is_directory(parent, error))
    return cannot_create(path, fmt::format("'{}' is a file", parent.string()));
  if (access(parent.c_str(), W_OK | X_OK) != 0) return cannot_create(path, strerror(errno));
  return "";
}

std::string why_not_old(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return cannot_resume(path, "the folder does not exist");
  try {
    if (RunFolder(path).checkpoint().empty())
      return cannot_resume(
          path, "the folder has no checkpoint; start in another folder without --resume");
  } catch (const ConfigError& why) {
    return cannot_resume(path, why.what());
  }
  if (access(path.c_str(), W_OK | X_OK) != 0) return cannot_resume(path, strerror(errno));
  return "";
}

std::string why_not_either(const std::string& path) {
  if (!has_run(path)) return why_not_new(path);
  return access(path.c_str(), W_OK | X_OK) == 0 ? "" : cannot_create(path, strerror(errno));
}

std::string first_of(const std::string& one, std::string (*other)(const std::string&),
                     const std::string& path) {
  return one.empty() ? other(path) : one;
}

void remove_empty(const std::vector<std::string>& folders) {
  for (auto one = folders.rbegin(); one != folders.rend(); ++one) rmdir(one->c_str());
}

// Those that it made, the outermost first.
std::vector<std::string> make_folders(const std::string& path) {
  std::vector<std::string> missing, made;
  for (fs::path part = path; !is_there(part) && part.has_relative_path(); part = part.parent_path())
    missing.push_back(part.string());
  for (auto one = missing.rbegin(); one != missing.rend(); ++one) {
    if (mkdir(one->c_str(), 0777) == 0) {
      made.push_back(*one);
    } else if (errno != EEXIST) {  // somebody else may have made it meanwhile
      const int error = errno;
      remove_empty(made);
      throw ConfigError(cannot_create(path, strerror(error)));
    }
  }
  return made;
}

}  // namespace

struct RunFolder::Hold {
  Hold(const std::string& folder, std::vector<std::string> made_folders)
      : path(folder), made(std::move(made_folders)), lock(std::in_place, folder) {}
  ~Hold() {
    if (getpid() != owner) return;
    // A start that was refused: what shows that the folder has no run of its own yet stays.
    std::error_code ignored;
    const fs::path folder = path;
    if (is_there(folder / runinfo::kPlanFile) || !is_there(folder / kLogs))
      fs::remove(folder / runinfo::kPlanToStart, ignored);
    lock.reset();
    remove_empty(made);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  std::string path;
  std::vector<std::string> made;  // by this process, the outermost first
  std::optional<RunLock> lock;
  pid_t owner = getpid();
};

RunFolder::RunFolder(const std::string& path)
    : path_(fs::absolute(path).lexically_normal().string()) {}

void RunFolder::hold(std::vector<std::string> made) {
  try {
    hold_ = std::make_shared<Hold>(path_, made);
  } catch (...) {
    remove_empty(made);
    throw;
  }
}

// What it looks like counts once it is locked.
RunFolder RunFolder::create(const std::string& path) {
  if (const std::string why = why_not(path); !why.empty()) throw ConfigError(why);
  RunFolder folder(path);
  folder.hold(make_folders(folder.path_));
  if (const std::string why = why_not_new(path); !why.empty()) throw ConfigError(why);
  return folder;
}

// mkdir() tells which of several comes first, on whatever host.
RunFolder RunFolder::create_for(const std::string& job) {
  const std::string base =
      fmt::format("runs/{}-{:%Y%m%dT%H%M%SZ}", job, fmt::gmtime(std::time(nullptr)));
  if (const std::string why = why_not_new(base + "/run"); !why.empty()) throw ConfigError(why);
  std::vector<std::string> made = make_folders(fs::absolute("runs").string());
  std::string path = base;
  for (int i = 2; mkdir(path.c_str(), 0777) != 0; ++i) {
    if (errno != EEXIST) throw ConfigError(cannot_create(path, strerror(errno)));
    path = fmt::format("{}-{}", base, i);
  }
  RunFolder folder(path);
  made.push_back(folder.path_);
  folder.hold(std::move(made));
  return folder;
}

RunFolder RunFolder::reopen(const std::string& path) {
  if (const std::string why = why_not_reopen(path); !why.empty()) throw ConfigError(why);
  RunFolder folder(path);
  folder.hold({});
  if (const std::string why = why_not_old(path); !why.empty()) throw ConfigError(why);
  return folder;
}

RunFolder RunFolder::go_on(const std::string& path) {
  if (const std::string why = why_not_go_on(path); !why.empty()) throw ConfigError(why);
  RunFolder folder(path);
  folder.hold(make_folders(folder.path_));
  if (const std::string why = why_not_either(path); !why.empty()) throw ConfigError(why);
  return folder;
}

std::string RunFolder::why_not(const std::string& path) {
  return first_of(RunLock::why_not(path), why_not_new, path);
}

std::string RunFolder::why_not_reopen(const std::string& path) {
  return first_of(RunLock::why_not(path), why_not_old, path);
}

std::string RunFolder::why_not_go_on(const std::string& path) {
  return first_of(RunLock::why_not(path), why_not_either, path);
}

void RunFolder::lay_plan(const std::string& from) const {
  const std::string to = path_ + "/" + runinfo::kPlanToStart;
  std::error_code error;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error)
    throw ConfigError(fmt::format("cannot copy '{}' to '{}': {}", from, to, error.message()));
}

std::string RunFolder::why_lost() const {
  if (!hold_) return "";
  const std::string now = hold_->lock->folder_now();
  if (now == path_) return "";
  return now.empty()
             ? fmt::format("run folder '{}' was removed while it was in use", path_)
             : fmt::format("run folder '{}' was moved to '{}' while it was in use", path_, now);
}

void RunFolder::begin_start() const {
  if (const std::string why = why_lost(); !why.empty()) throw ConfigError(why);
  std::error_code error;
  for (const char* name : {"errors", "timeline", runinfo::kTraceFolder})
    fs::remove_all(fs::path(path_) / name, error);
  for (const char* name : {kLogs, "errors"}) {
    fs::create_directories(fs::path(path_) / name, error);
    if (error) throw ConfigError(cannot_create(path_, error.message()));
  }
}

std::string RunFolder::checkpoint() const {
  // Ranks make the folder anew when they save: what they saved there is the newest.
  const auto name = runinfo::checkpoint_to_go_on_from(path_ + "/" + runinfo::kCheckpointsFolder);
  if (name && !name->empty()) return *name;
  if (const std::string why = why_lost(); !why.empty())
    throw ConfigError(why + ": its checkpoints are no longer there");
  return "";
}

std::string RunFolder::note() const { return hold_ ? hold_->lock->note() : ""; }

std::string RunFolder::plan() const { return path_ + "/" + runinfo::kPlanFile; }

std::string RunFolder::plan_to_start() const {
  const std::string laid = path_ + "/" + runinfo::kPlanToStart;
  return is_there(laid) ? laid : plan();
}

job::RankFiles RunFolder::files_of(int rank) const {
  job::RankFiles files;
  files.out_log = log(fmt::format("rank-{}.out", rank));
  files.err_log = log(fmt::format("rank-{}.err", rank));
  files.error_file = fmt::format("{}/errors/rank-{}.json", path_, rank);
  return files;
}

std::string RunFolder::host_log(int host) const {
  return log(fmt::format("algo-{}.log", host + 1));
}

}  // namespace smp::run
