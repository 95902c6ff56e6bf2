#include "segment/allowed_cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "smp/plan/system/control_groups.h"

namespace smp::segment {
namespace {

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "32768K", as the kernel writes it; 0 for anything else.
int64_t bytes_of_size(const std::string& text) {
  std::istringstream words(text);
  int64_t number = 0;
  char unit = 0;
  if (!(words >> number >> unit) || number < 0) return 0;
  return unit == 'K' ? number << 10 : unit == 'M' ? number << 20 : 0;
}

int64_t last_cache_bytes(const cpu_set_t& cpus, const std::string& root) {
  constexpr int64_t kUnknown = 32 << 20;
  std::set<std::string> counted;  // the lists of CPUs that share a cache
  int64_t bytes = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    const std::string caches =
        root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index";
    std::string sharing;
    int64_t size = 0;
    for (int index = 0;; ++index) {  // from the nearest cache on
      const std::string cache = caches + std::to_string(index);
      const int64_t found = bytes_of_size(line_of(cache + "/size"));
      if (found == 0) break;
      size = found;
      sharing = line_of(cache + "/shared_cpu_list");
    }
    if (size > 0 && counted.insert(sharing).second) bytes += size;
  }
  return bytes > 0 ? bytes : kUnknown;
}

}  // namespace

std::optional<int> cpus_of_quota(const std::string& text) {
  std::istringstream words(text);
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return std::max(1, int(quota / period));
}

AllowedCpus allowed_cpus(const std::vector<int>& others, const std::string& root) {
  cpu_set_t all;
  CPU_ZERO(&all);
  const auto add = [&](int process) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(process, sizeof(set), &set) == 0) CPU_OR(&all, &all, &set);
  };
  add(0);
  for (const int process : others) add(process);
  const int bound_to = std::max(1, CPU_COUNT(&all));
  int cpus = bound_to;
  const auto grant = [&](const std::string& quota) {
    cpus = std::min(cpus, cpus_of_quota(quota).value_or(cpus));
  };
  for (const system::ControlGroup& group : system::control_groups("cpu", root)) {
    if (group.is_v2)
      grant(line_of(group.folder + "/cpu.max"));
    else
      grant(line_of(group.folder + "/cpu.cfs_quota_us") + " " +
            line_of(group.folder + "/cpu.cfs_period_us"));
  }
  std::vector<int> numbers;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &all)) numbers.push_back(cpu);
  return {cpus, last_cache_bytes(all, root) / bound_to * cpus, std::move(numbers)};
}

int AllowedCpus::place_here() const {
  const int cpu = sched_getcpu();
  const auto found = std::lower_bound(numbers.begin(), numbers.end(), cpu);
  return found == numbers.end() || *found != cpu ? 0 : int(found - numbers.begin());
}

}  // namespace smp::segment
