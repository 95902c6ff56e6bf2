#include "allowed_cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "control_groups.h"

namespace smp::shm {
namespace {

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
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
  for (const ControlGroup& group : control_groups("cpu", root)) {
    if (group.is_v2)
      grant(line_of(group.folder + "/cpu.max"));
    else
      grant(line_of(group.folder + "/cpu.cfs_quota_us") + " " +
            line_of(group.folder + "/cpu.cfs_period_us"));
  }
  return cpus;
}

}  // namespace smp::shm
