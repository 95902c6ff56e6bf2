#pragma once

#include <chrono>
#include <set>
#include <vector>

#include "smp/launcher/cause.h"
#include "smp/launcher/host.h"
#include "smp/launcher/job.h"

namespace smp {

// What ranks that stand still are asked to show of themselves, and whether it has all come.
class StackDump {
 public:
  using Clock = std::chrono::steady_clock;

  StackDump(HangDump kind, Host& host) : kind_(kind), host_(host) {}

  void begin(const std::vector<RankState>& ranks, Clock::time_point now);
  void saw_output(Clock::time_point now) { output_at_ = now; }
  void forget(int rank) { showing_.erase(rank); }  // it has shown all, or has ended
  bool is_over(Clock::time_point now) const;

 private:
  const HangDump kind_;
  Host& host_;
  Clock::time_point began_, output_at_;
  std::set<int> showing_;  // ranks whose stacks have not all come
};

}  // namespace smp
