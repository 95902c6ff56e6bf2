#include "allowed_cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace smp::shm {
namespace {

// The process's group in the hierarchy of cgroup v2: "/a/b", or "/" in a container of its own.
std::string own_group(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::")) return line.substr(3);
  return "/";
}

}  // namespace

std::optional<int> cpus_of_quota(const std::string& text) {
  std::istringstream words(text);
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return std::max(1, int(quota / period));
}

int allowed_cpus(const std::string& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  for (std::string group = own_group(root);; group = group.substr(0, group.rfind('/'))) {
    std::ifstream file(root + "/sys/fs/cgroup" + group + "/cpu.max");
    std::string text;
    if (std::getline(file, text)) cpus = std::min(cpus, cpus_of_quota(text).value_or(cpus));
    if (group.find('/') == group.npos) return cpus;
  }
}

}  // namespace smp::shm
