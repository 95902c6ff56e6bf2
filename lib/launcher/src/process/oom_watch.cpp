#include "process/oom_watch.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "smp/plan/system/control_groups.h"

namespace smp::process {

namespace {

constexpr int64_t kNoLimit = int64_t{1} << 60;  // v1 without a limit: the largest number of pages

}  // namespace

OomWatch::OomWatch()
    : OomWatch(system::own_group_files("memory.events", "memory.oom_control"),
               system::own_group_files("memory.max", "memory.limit_in_bytes")) {}

OomWatch::OomWatch(std::vector<std::string> counters, std::vector<std::string> limits)
    : counters_(std::move(counters)), limits_(std::move(limits)), told_(kills()) {}

int64_t OomWatch::kills() const {
  int64_t kills = 0;
  for (const std::string& file : counters_) {
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

int64_t OomWatch::limit_bytes() const {
  int64_t least = kNoLimit;
  for (const std::string& file : limits_) {
    int64_t bytes = 0;  // "max" is not a number
    if (std::ifstream(file) >> bytes && bytes > 0) least = std::min(least, bytes);
  }
  return least == kNoLimit ? 0 : least;
}

}  // namespace smp::process
