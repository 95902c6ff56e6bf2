#include "process/rank_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "smp/plan/system/control_groups.h"

namespace smp::process {
namespace {

constexpr int kMostTries = 100;  // one per millisecond

// Empty if this process has no permission to make groups. The root group has no such files, and it
// is never delegated.
std::string delegated_folder() {
  const std::vector<std::string> files = system::own_group_files("cgroup.events", "cgroup.events");
  if (files.empty()) return "";
  const std::string folder = std::filesystem::path(files.front()).parent_path().string();
  for (const char* file : {"", "/cgroup.procs", "/cgroup.kill"}) {
    if (access((folder + file).c_str(), W_OK) != 0) return "";
  }
  return folder;
}

// Process numbers belong to a PID namespace, and several namespaces can share the group.
std::string name_for(pid_t owner) {
  struct stat numbers {};
  stat("/proc/self/ns/pid", &numbers);
  return fmt::format("smp-ranks-{}-{}", numbers.st_ino, owner);
}

// Some containers forbid clone3.
bool can_be_born_in_one() {
  return syscall(SYS_clone3, nullptr, 0) < 0 && errno != ENOSYS && errno != EPERM;
}

// A group below a threaded group can only have threads.
bool is_for_processes(const std::string& path) {
  std::string type;
  std::ifstream(path + "/cgroup.type") >> type;
  return type == "domain";
}

}  // namespace

RankCgroup::RankCgroup(std::string path)
    : path_(std::move(path)),
      folder_(path_.empty() ? -1 : open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

RankCgroup RankCgroup::make() {
  const std::string parent = delegated_folder();
  if (parent.empty() || !can_be_born_in_one()) return RankCgroup("");
  std::string path = parent + "/" + name_for(getpid());
  rmdir(path.c_str());  // left by an earlier process with our number
  if (mkdir(path.c_str(), 0755) != 0) return RankCgroup("");
  if (!is_for_processes(path)) {
    rmdir(path.c_str());
    return RankCgroup("");
  }
  return RankCgroup(std::move(path));
}

RankCgroup RankCgroup::of(pid_t owner) {
  const std::string parent = delegated_folder();
  return RankCgroup(parent.empty() ? "" : parent + "/" + name_for(owner));
}

// A process that was waited for can stay in the group for a moment.
RankCgroup::~RankCgroup() {
  if (!folder_) return;
  for (int tries = 0; rmdir(path_.c_str()) != 0 && errno == EBUSY && tries < kMostTries; ++tries)
    usleep(1000);
}

int RankCgroup::kill() const {
  if (!folder_) return 0;
  std::ifstream processes(path_ + "/cgroup.procs");
  int count = 0;
  for (pid_t pid = 0; processes >> pid;) ++count;
  std::ofstream(path_ + "/cgroup.kill") << 1;
  return count;
}

}  // namespace smp::process
