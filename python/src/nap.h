#pragma once

#include <chrono>

namespace smp::pytorch {

// Sleeps between two looks at something under way: the longer it lasts, the longer.
class Nap {
 public:
  std::chrono::microseconds length() const;
  void take() const;
  void moved() { since_ = Clock::now(); }  // the next nap is a short one

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point since_ = Clock::now();
};

}  // namespace smp::pytorch
