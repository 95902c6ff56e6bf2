#pragma once

#include <algorithm>
#include <chrono>

namespace smp::shm {

// How long a loop has waited for somebody. Of a turn that takes longer than kMostOfTurn no more
// than that counts: this process was stopped or had no CPU, and could not have heard anybody.
class WaitedTime {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kMostOfTurn{50};

  explicit WaitedTime(Clock::time_point begin) : last_(begin) {}
  // To be asked once in each turn.
  Clock::duration until(Clock::time_point now) {
    waited_ += std::min<Clock::duration>(now - last_, kMostOfTurn);
    last_ = now;
    return waited_;
  }

 private:
  Clock::time_point last_;
  Clock::duration waited_{0};
};

}  // namespace smp::shm
