#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace smp::segment {

// The CPUs that a control group grants in cpu.max: "200000 100000" is 2 CPUs, "max 100000" any
// number (nothing). Rounded down, but at least 1.
std::optional<int> cpus_of_quota(const std::string& text);

struct AllowedCpus {
  int count;
  // Bytes of their last-level caches, each counted once; 32 MiB where the kernel says nothing.
  int64_t cache_bytes;
  std::vector<int> numbers;  // CPUs of the affinity masks, in order; a quota may grant fewer

  // The index in `numbers` of the CPU that runs the calling thread; 0 if it is none of them.
  int place_here() const;
};

// The CPUs that this process and the `others` (process ids; one that is gone counts as none) may
// use together: the union of their affinity masks, since a launcher may have bound each to its own.
// The quota of this process's control group, or of a parent, may grant fewer (cgroup v2 and v1).
// Their share of the caches is then as much smaller. /proc and /sys lie below `root`.
AllowedCpus allowed_cpus(const std::vector<int>& others = {}, const std::string& root = "");

}  // namespace smp::segment
