#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace smp::shm {

// What a control group grants, as cpu.max says it: "200000 100000" is 2 CPUs, "max 100000" any
// number. A part of one counts as one.
std::optional<int> cpus_of_quota(const std::string& text);

struct AllowedCpus {
  int count;
  int64_t cache_bytes;  // of their last caches, each counted once; 32 MiB where nothing says it
  std::vector<int> numbers;  // those of the affinity, in order; a quota may grant fewer

  // That of the CPU which runs the calling thread, from 0; 0 if it is none of these.
  int place_here() const;
};

// CPUs that this process and the `others` (process ids; one that is gone counts as none) may use
// together: those of the affinity of any, for a launcher may have bound each to its own, or fewer
// by the quota of this process's control group or of one above (cgroup v2 and v1), and as large a
// share of the caches. /proc and /sys lie below `root`.
AllowedCpus allowed_cpus(const std::vector<int>& others = {}, const std::string& root = "");

}  // namespace smp::shm
