#include "process/control_group.h"

#include <unistd.h>

#include <fstream>

namespace smp::process {

// Lines of /proc/self/cgroup are number:controllers:path; the unified hierarchy is number 0 and
// names no controller. In a container the path may be that of the world outside: then its root is
// ours.
std::vector<std::string> own_group_files(const std::string& unified, const std::string& legacy) {
  std::vector<std::string> files;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    const bool is_unified = controllers.empty();
    if (!is_unified && controllers != "memory") continue;
    for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"}) {
      for (const std::string& group : {path, std::string("/")}) {
        std::string file = root + group + "/" + (is_unified ? unified : legacy);
        if (access(file.c_str(), R_OK) != 0) continue;
        files.push_back(std::move(file));
        break;
      }
    }
  }
  return files;
}

}  // namespace smp::process
