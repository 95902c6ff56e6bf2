#include "smp/plan/system/control_groups.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <set>

namespace smp::system {
namespace {

// A line of /proc/self/cgroup: "0::/a/b" of v2, which names no controller, "4:cpu,cpuacct:/a/b" of
// v1.
struct Membership {
  std::string controllers, path;
  bool is_v2() const { return controllers.empty(); }
};

std::vector<Membership> memberships(const std::string& root) {
  std::vector<Membership> all;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    all.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return all;
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  constexpr const char* kMount = "/sys/fs/cgroup";
  std::vector<ControlGroup> groups;
  for (const Membership& own : memberships(root)) {
    std::set<std::string> mounts;
    if (own.is_v2())
      mounts = {kMount};
    else if (fmt::format(",{},", own.controllers).find(fmt::format(",{},", controller)) !=
             std::string::npos)
      mounts = {fmt::format("{}/{}", kMount, own.controllers),
                fmt::format("{}/{}", kMount, controller)};
    for (const std::string& mount : mounts)
      for (std::string path = own.path;; path = path.substr(0, path.rfind('/'))) {
        if (path == "/") path.clear();
        groups.push_back({mount, path, root + mount + path, own.is_v2()});
        if (path.find('/') == path.npos) break;
      }
  }
  return groups;
}

std::vector<std::string> own_group_files(const std::string& unified, const std::string& legacy) {
  std::vector<std::string> files;
  for (const Membership& own : memberships("")) {
    if (!own.is_v2() && own.controllers != "memory") continue;
    for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"})
      // A container may be told its path in the host's hierarchy, while it sees its own group as
      // the root.
      for (const std::string& group : {own.path, std::string("/")}) {
        std::string file = mount + group + "/" + (own.is_v2() ? unified : legacy);
        if (access(file.c_str(), R_OK) != 0) continue;
        files.push_back(std::move(file));
        break;
      }
  }
  return files;
}

}  // namespace smp::system
