#include "smp/launcher/run/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

namespace smp::run {
namespace {

using std::chrono::seconds;

constexpr seconds kStatusIsWrittenWithin{5};  // once a second, where a file system keeps up
constexpr seconds kEndsWithin{15};  // ranks that hang inside the kernel are given up after 10
constexpr size_t kMostLockBytes = 4096;

struct LockHolder {
  std::string host;
  std::string boot;  // of the kernel that it ran under
  int64_t process = 0;
  int64_t process_began = 0;  // in the kernel's ticks: another process may have its number now
  int64_t since = 0;          // seconds since 1970
};

std::string host_of_lock() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string boot_of_lock() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

// 0: there is no such process.
int64_t ticks_at_start_of(int64_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  if (!std::getline(file, text)) return 0;
  const size_t name_end = text.rfind(')');
  if (name_end == text.npos) return 0;
  std::istringstream words(text.substr(name_end + 1));
  constexpr int kStartTime = 20;  // words behind the name
  std::string word;
  for (int i = 0; i < kStartTime; ++i) words >> word;
  return std::strtoll(word.c_str(), nullptr, 10);
}

std::string text_of_holder(const LockHolder& holder) {
  text::OrderedJson json = {{"host", holder.host},
                            {"process", holder.process},
                            {"since", holder.since},
                            {"boot", holder.boot},
                            {"process_began", holder.process_began}};
  return json.dump() + "\n";
}

std::optional<LockHolder> holder_in(int file) {
  std::string text(kMostLockBytes, '\0');
  const ssize_t got = pread(file, text.data(), text.size(), 0);
  if (got <= 0) return std::nullopt;
  text.resize(static_cast<size_t>(got));
  const text::Json json = text::Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    return LockHolder{json.at("host"), json.at("boot"), json.at("process"),
                      json.at("process_began"), json.at("since")};
  } catch (const text::Json::exception&) {
    return std::nullopt;
  }
}

std::string words_for(const std::optional<LockHolder>& holder) {
  if (!holder) return "another smp-launch";
  return fmt::format("smp-launch, process {} on host {}, since {:%Y-%m-%d %H:%M:%S} UTC",
                     holder->process, holder->host,
                     fmt::gmtime(static_cast<std::time_t>(holder->since)));
}

std::string in_use(const std::string& folder, const std::optional<LockHolder>& holder) {
  return fmt::format(
      "run folder '{}' is in use by {}: wait until this job has ended, stop this job, or give "
      "another folder with --run-dir",
      folder, words_for(holder));
}

// Changes whenever the file is written or replaced.
std::string stamp_of_status(const std::string& folder) {
  struct stat info {};
  if (stat((folder + "/status.json").c_str(), &info) != 0) return "";
  return fmt::format("{} {} {}", info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

bool status_goes_on(const std::string& folder) {
  const std::string before = stamp_of_status(folder);
  const auto until = std::chrono::steady_clock::now() + kStatusIsWrittenWithin;
  while (std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (stamp_of_status(folder) != before) return true;
  }
  return false;
}

// Of one that has left its name there, and no lock that this host can see.
bool may_hold(const LockHolder& holder, bool has_locks, const std::string& folder) {
  if (holder.boot == boot_of_lock())
    return !has_locks && ticks_at_start_of(holder.process) == holder.process_began;
  if (holder.host == host_of_lock()) return false;  // which was started anew meanwhile
  return status_goes_on(folder);
}

// Locks of the open file, which a forked process shares, not of a process.
struct flock whole_file() {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return whole;
}

bool is_still_named(int file, const std::string& path) {
  struct stat open_file {
  }, named{};
  return fstat(file, &open_file) == 0 && stat(path.c_str(), &named) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

system::FileDescriptor open_lock(const std::string& folder) {
  const std::string path = folder + "/" + RunLock::kFile;
  return system::FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
}

struct HeldLock {
  bool is_held = false;
  std::optional<LockHolder> holder;
};

HeldLock look_at_lock(const std::string& folder) {
  const system::FileDescriptor file = open_lock(folder);
  if (!file) return {};
  struct flock whole = whole_file();
  if (fcntl(file.number(), F_OFD_GETLK, &whole) != 0 || whole.l_type == F_UNLCK) return {};
  return {true, holder_in(file.number())};
}

}  // namespace

RunLock::RunLock(const std::string& folder) : path_(folder + "/" + kFile), owner_(getpid()) {
  while (true) {
    file_ = system::FileDescriptor(
        open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0644));
    if (!file_)
      throw ConfigError(fmt::format(
          "cannot lock run folder '{}': {}", folder,
          errno == ELOOP ? fmt::format("its file '{}' is a symbolic link: remove the link", kFile)
                         : strerror(errno)));
    struct flock whole = whole_file();
    const bool has_locks = fcntl(file_.number(), F_OFD_SETLK, &whole) == 0;
    const bool held = !has_locks && (errno == EAGAIN || errno == EACCES);
    const auto holder = holder_in(file_.number());
    if (held) throw ConfigError(in_use(folder, holder));
    if (!is_still_named(file_.number(), path_)) continue;  // its holder has just removed it
    if (holder && may_hold(*holder, has_locks, folder)) throw ConfigError(in_use(folder, holder));
    if (holder && holder->host != host_of_lock())
      note_ = fmt::format(
          "run folder '{}' was in use by {}, which has written nothing there for {} s: this "
          "smp-launch has taken the folder over",
          folder, words_for(holder), kStatusIsWrittenWithin.count());
    break;
  }
  const std::string text = text_of_holder(
      {host_of_lock(), boot_of_lock(), owner_, ticks_at_start_of(owner_), std::time(nullptr)});
  if (ftruncate(file_.number(), 0) != 0 ||
      pwrite(file_.number(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    unlink(path_.c_str());
    throw ConfigError(fmt::format("cannot lock run folder '{}': {}", folder, strerror(error)));
  }
}

RunLock::~RunLock() {
  if (getpid() == owner_) unlink(path_.c_str());
}

std::string RunLock::why_not(const std::string& folder) {
  const HeldLock lock = look_at_lock(folder);
  return lock.is_held ? in_use(folder, lock.holder) : "";
}

bool RunLock::is_left(const std::string& folder) {
  if (look_at_lock(folder).is_held) return false;
  const system::FileDescriptor file = open_lock(folder);
  const auto holder = file ? holder_in(file.number()) : std::nullopt;
  // A container of this host has processes of its own, and a name.
  if (!holder || holder->host != host_of_lock() || ticks_at_start_of(getpid()) == 0) return false;
  return holder->boot != boot_of_lock() ||
         ticks_at_start_of(holder->process) != holder->process_began;
}

std::string RunLock::folder_now() const {
  const std::string folder = path_.substr(0, path_.rfind('/'));
  if (is_still_named(file_.number(), path_)) return folder;
  std::error_code error;  // of what was removed, the name goes on with " (deleted)"
  const std::filesystem::path now =
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file_.number()), error);
  return is_still_named(file_.number(), now.string()) ? now.parent_path().string() : "";
}

void RunLock::await_end(const std::string& folder) {
  const auto until = std::chrono::steady_clock::now() + kEndsWithin;
  while (std::chrono::steady_clock::now() < until) {
    const HeldLock lock = look_at_lock(folder);
    const auto& holder = lock.holder;
    const bool is_ending = lock.is_held && holder && holder->boot == boot_of_lock() &&
                           ticks_at_start_of(holder->process) != holder->process_began;
    if (!is_ending) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace smp::run
