#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "waiting/process_state.h"

// How long this rank has looked at something. A pause between two looks counts for little: a rank
// that was itself stopped or had no CPU has seen nothing meanwhile, nor had its peers a CPU.
namespace smp::waiting {

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
  Clock::time_point since() const { return since_; }  // time of the first look
  Clock::duration looked_for() const { return looked_for_; }

 private:
  Clock::time_point since_, last_;
  Clock::duration looked_for_{0};
};

// Whether a rank that waited, when it last looked at what it waits for, is stopped; nothing as long
// as that is open. `has_looked`: it has looked while this rank watched it, for `looked_for`. A rank
// that is not stopped looks again `within` this time.
inline std::optional<bool> is_stopped_by(ProcessState state, bool has_looked,
                                         Looking::Clock::duration looked_for,
                                         Looking::Clock::duration within) {
  // Where a whole host was stopped, its other ranks may go on a moment later.
  constexpr std::chrono::milliseconds kStoppedFor{100};
  if (state == ProcessState::kStopped)
    return looked_for < kStoppedFor ? std::nullopt : std::optional(true);
  if (has_looked || state == ProcessState::kRunnable) return false;
  return looked_for < within ? std::nullopt : std::optional(true);
}

}  // namespace smp::waiting
