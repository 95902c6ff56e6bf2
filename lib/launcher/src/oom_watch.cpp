#include "oom_watch.h"

#include <fstream>
#include <utility>

namespace smp {

OomWatch::OomWatch(std::vector<std::string> files) : files_(std::move(files)), told_(kills()) {}

// Lines of /proc/self/cgroup are number:controllers:path; the unified hierarchy is number 0 and
// names no controller. In a container the path may be that of the world outside: then its root is
// ours.
std::vector<std::string> OomWatch::own_files() {
  std::vector<std::string> files;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    const bool unified = controllers.empty();
    if (!unified && controllers != "memory") continue;
    for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"}) {
      for (const std::string& group : {path, std::string("/")}) {
        std::string file = root + group + (unified ? "/memory.events" : "/memory.oom_control");
        if (!std::ifstream(file)) continue;
        files.push_back(std::move(file));
        break;
      }
    }
  }
  return files;
}

int64_t OomWatch::kills() const {
  int64_t kills = 0;
  for (const std::string& file : files_) {
    std::ifstream counters(file);
    std::string name;
    for (int64_t count = 0; counters >> name >> count;) {
      if (name == "oom_kill") kills += count;
    }
  }
  return kills;
}

bool OomWatch::take_kill() {
  if (told_ >= kills()) return false;
  ++told_;
  return true;
}

}  // namespace smp
