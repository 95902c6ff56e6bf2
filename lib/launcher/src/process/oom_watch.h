#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smp::process {

// Whether the kernel has killed a process of this control group because memory ran out: the group's
// own limit, or the machine's. Counts through memory.events (cgroup v2) or memory.oom_control (v1).
class OomWatch {
 public:
  OomWatch();  // of this process's group
  OomWatch(std::vector<std::string> counters, std::vector<std::string> limits);

  // True if there was one since the last call that said so; each is told once.
  bool take_kill();

  // What the group may have; 0: as much as there is.
  int64_t limit_bytes() const;

 private:
  int64_t kills() const;

  std::vector<std::string> counters_, limits_;
  int64_t told_ = 0;
};

}  // namespace smp::process
