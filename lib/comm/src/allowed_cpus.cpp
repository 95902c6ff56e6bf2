#include "allowed_cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace smp::shm {
namespace {

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Calls `visit` with the folder of `group` below `mount` and of all groups that it is part of.
template <class Visit>
void visit_groups(const std::string& mount, std::string group, Visit visit) {
  for (;; group = group.substr(0, group.rfind('/'))) {
    visit(mount + group);
    if (group.find('/') == group.npos) return;
  }
}

bool has_cpu(const std::string& controllers) {  // "cpu,cpuacct"
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');)
    if (name == "cpu") return true;
  return false;
}

}  // namespace

std::optional<int> cpus_of_quota(const std::string& text) {
  std::istringstream words(text);
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return std::max(1, int(quota / period));
}

int allowed_cpus(const std::vector<int>& others, const std::string& root) {
  cpu_set_t all;
  CPU_ZERO(&all);
  const auto add = [&](int process) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(process, sizeof(set), &set) == 0) CPU_OR(&all, &all, &set);
  };
  add(0);
  for (const int process : others) add(process);
  int cpus = std::max(1, CPU_COUNT(&all));
  const auto grant = [&](const std::string& quota) {
    cpus = std::min(cpus, cpus_of_quota(quota).value_or(cpus));
  };
  std::ifstream groups(root + "/proc/self/cgroup");  // "0::/a/b" of v2, "4:cpu,cpuacct:/a/b" of v1
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (line.starts_with("0::"))
      visit_groups(root + "/sys/fs/cgroup", group,
                   [&](const std::string& folder) { grant(line_of(folder + "/cpu.max")); });
    if (has_cpu(controllers))
      for (const std::string& name : {controllers, std::string("cpu")})
        visit_groups(root + "/sys/fs/cgroup/" + name, group, [&](const std::string& folder) {
          grant(line_of(folder + "/cpu.cfs_quota_us") + " " +
                line_of(folder + "/cpu.cfs_period_us"));
        });
  }
  return cpus;
}

}  // namespace smp::shm
