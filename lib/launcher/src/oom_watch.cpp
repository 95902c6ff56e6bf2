#include "oom_watch.h"

#include <fstream>
#include <utility>

#include "control_group.h"

namespace smp {

OomWatch::OomWatch(std::vector<std::string> files) : files_(std::move(files)), told_(kills()) {}

std::vector<std::string> OomWatch::own_files() {
  return own_group_files("memory.events", "memory.oom_control");
}

int64_t OomWatch::kills() const {
  int64_t kills = 0;
  for (const std::string& file : files_) {
    std::ifstream counters(file);
    std::string name;
    for (int64_t count = 0; counters >> name >> count;) {
      if (name == "oom_kill") kills += count;
    }
  }
  return kills;
}

bool OomWatch::take_kill() {
  if (told_ >= kills()) return false;
  ++told_;
  return true;
}

}  // namespace smp
