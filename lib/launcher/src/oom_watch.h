#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smp {

// Whether the kernel has killed a process of this control group because memory ran out: the group's
// own limit, or the machine's. Counts through memory.events (cgroup v2) or memory.oom_control (v1).
class OomWatch {
 public:
  OomWatch() : OomWatch(own_files()) {}
  explicit OomWatch(std::vector<std::string> files);

  // True if there was one since the last call that said so; each is told once.
  bool take_kill();

 private:
  static std::vector<std::string> own_files();
  int64_t kills() const;

  std::vector<std::string> files_;
  int64_t told_ = 0;
};

}  // namespace smp
