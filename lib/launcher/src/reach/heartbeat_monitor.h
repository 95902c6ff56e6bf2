#pragma once

#include <algorithm>
#include <chrono>

namespace smp::reach {

// The heartbeats of one channel. Both sides send something every interval(). A side that hears
// nothing for the whole limit takes the other for lost. Time in which this process did not run (it
// was stopped, or the machine slept or was overloaded) does not count.
class HeartbeatMonitor {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kIntervals = 10;  // in the limit

  explicit HeartbeatMonitor(std::chrono::milliseconds limit)
      : limit_(limit), heard_at_(Clock::now()), ticked_at_(heard_at_) {}

  std::chrono::milliseconds interval() const { return limit_ / kIntervals; }
  std::chrono::milliseconds limit() const { return limit_; }
  Clock::time_point heard_at() const { return heard_at_; }
  void heard() { heard_at_ = Clock::now(); }

  // True once an interval: time to send a heartbeat, and to ask is_over(). To be called more often
  // than that, after all that had arrived was read.
  bool tick() {
    const Clock::time_point now = Clock::now();
    const auto since = now - ticked_at_;
    if (since < interval()) return false;
    if (since > 3 * interval()) heard_at_ = std::min(heard_at_ + since, now);
    ticked_at_ = now;
    return true;
  }
  bool is_over() const { return Clock::now() - heard_at_ > limit_; }

 private:
  std::chrono::milliseconds limit_;
  Clock::time_point heard_at_, ticked_at_;
};

}  // namespace smp::reach
