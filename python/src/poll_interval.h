#pragma once

#include <chrono>

namespace smp::pytorch {

// The sleep between two polls of work under way. It grows with the time since the last progress.
class PollInterval {
 public:
  std::chrono::microseconds length() const;
  void sleep() const;
  void reset() { since_ = Clock::now(); }  // the next sleep is short

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point since_ = Clock::now();
};

}  // namespace smp::pytorch
