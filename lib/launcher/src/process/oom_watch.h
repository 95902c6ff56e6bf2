#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smp::process {

// Detects that the kernel killed a process of this control group because the memory of the group or
// of the machine ran out. Reads memory.events (cgroup v2) or memory.oom_control (v1).
class OomWatch {
 public:
  OomWatch();  // watches the control group of this process
  OomWatch(std::vector<std::string> counters, std::vector<std::string> limits);

  // True if a process was killed since the last call that returned true.
  bool take_kill();

  // The memory limit of the group; 0: none.
  int64_t limit_bytes() const;

 private:
  int64_t kills() const;

  std::vector<std::string> counters_, limits_;
  int64_t told_ = 0;
};

}  // namespace smp::process
