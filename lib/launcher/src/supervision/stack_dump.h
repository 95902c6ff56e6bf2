#pragma once

#include <chrono>
#include <set>
#include <vector>

#include "smp/launcher/job/cause.h"
#include "smp/launcher/job/host.h"
#include "smp/launcher/job/job.h"

namespace smp::supervision {

// Asks hung ranks for their stacks, and knows when all stacks have arrived.
class StackDump {
 public:
  using Clock = std::chrono::steady_clock;

  StackDump(job::HangDump kind, job::Host& host) : kind_(kind), host_(host) {}

  void begin(const std::vector<job::RankState>& ranks, Clock::time_point now);
  void saw_output(Clock::time_point now) { output_at_ = now; }
  void forget(int rank) { showing_.erase(rank); }  // the rank has shown its stacks or has ended
  bool is_over(Clock::time_point now) const;

 private:
  const job::HangDump kind_;
  job::Host& host_;
  Clock::time_point began_, output_at_;
  std::set<int> showing_;  // ranks whose stacks have not all arrived
};

}  // namespace smp::supervision
