#include "segment/control_groups.h"

#include <fmt/format.h>

#include <fstream>
#include <set>

namespace smp::segment {

std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  constexpr const char* kMount = "/sys/fs/cgroup";
  std::vector<ControlGroup> groups;
  std::ifstream file(root + "/proc/self/cgroup");  // "0::/a/b" of v2, "4:cpu,cpuacct:/a/b" of v1
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const bool is_v2 = names.empty();
    std::set<std::string> mounts;
    if (is_v2)
      mounts = {kMount};
    else if (fmt::format(",{},", names).find(fmt::format(",{},", controller)) != names.npos)
      mounts = {fmt::format("{}/{}", kMount, names), fmt::format("{}/{}", kMount, controller)};
    for (const std::string& mount : mounts)
      for (std::string path = line.substr(second + 1);; path = path.substr(0, path.rfind('/'))) {
        if (path == "/") path.clear();
        groups.push_back({mount, path, root + mount + path, is_v2});
        if (path.find('/') == path.npos) break;
      }
  }
  return groups;
}

}  // namespace smp::segment
