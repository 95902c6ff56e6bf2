#pragma once

#include <algorithm>
#include <chrono>

// How long one has looked at something. A pause between two looks counts for little: who was itself
// stopped, or had no CPU, has seen nothing meanwhile, and its mates had none either.
namespace smp::shm {

class Looking {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kMostOfPause{50};

  void look(Clock::time_point now) {
    if (since_ == Clock::time_point())
      since_ = now;
    else
      looked_for_ += std::min<Clock::duration>(now - last_, kMostOfPause);
    last_ = now;
  }
  Clock::time_point since() const { return since_; }  // the first look
  Clock::duration looked_for() const { return looked_for_; }

 private:
  Clock::time_point since_, last_;
  Clock::duration looked_for_{0};
};

}  // namespace smp::shm
