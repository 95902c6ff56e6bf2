#pragma once

#include <optional>
#include <string>

namespace smp::shm {

// What a control group grants, as cpu.max says it: "200000 100000" is 2 CPUs, "max 100000" any
// number. A part of one counts as one.
std::optional<int> cpus_of_quota(const std::string& text);

// CPUs that this process may use at once: those of its affinity, or fewer by the quota of its
// control group or of one above (cgroup v2 and v1; /proc and /sys/fs/cgroup below `root`).
int allowed_cpus(const std::string& root = "");

}  // namespace smp::shm
