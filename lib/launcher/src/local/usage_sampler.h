#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "health/gpu_watch.h"
#include "smp/plan/system/host_usage.h"

namespace smp::local {

// Samples the resource usage of this host's ranks from /proc, the control group and the GPUs. After
// a sample it waits 2000 times as long as the sample took. So it uses at most 0.05 % of one CPU,
// for any number of processes. One thread.
class UsageSampler {
 public:
  using Clock = std::chrono::steady_clock;

  explicit UsageSampler(std::chrono::milliseconds every);

  void add(int rank, pid_t pid) { ranks_[rank].pid = pid; }
  void remove(int rank) { ranks_.erase(rank); }

  // Returns a sample if one is due. The first call returns none, because rates need two readings.
  std::optional<system::HostUsage> take(Clock::time_point now);

 private:
  struct Rank {
    pid_t pid = 0;
    std::vector<pid_t> tree;       // the rank's processes at the last search
    std::map<pid_t, double> seen;  // processes at the last reading, with their start times
    double cpu_s = 0;              // CPU time of these processes
  };
  struct Traffic {
    int64_t received = 0, sent = 0;  // bytes
  };

  system::HostUsage look(double seconds);
  void find_processes(Clock::time_point now);
  system::RankUsage look_at(int number, Rank& rank, double seconds);
  void add_gpus(system::HostUsage& usage) const;

  std::chrono::milliseconds every_;
  health::GpuWatch gpus_;
  std::vector<std::string> group_files_;  // memory of the control group, and its limit
  std::map<int, Rank> ranks_;
  std::optional<Clock::time_point> looked_at_;
  double looked_boot_s_ = 0;  // looked_at_ in seconds since boot
  Clock::time_point due_{}, trees_due_{};
  Traffic traffic_;
};

}  // namespace smp::local
