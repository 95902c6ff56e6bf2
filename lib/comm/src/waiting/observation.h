#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "waiting/process_state.h"

// How long this rank has observed a condition. A long pause between two observations counts for
// little: this rank was then stopped or had no CPU, and its peers may have had none either.
namespace smp::waiting {

class Observation {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kMostOfPause{50};

  void observe(Clock::time_point now) {
    if (since_ == Clock::time_point())
      since_ = now;
    else
      observed_for_ += std::min<Clock::duration>(now - last_, kMostOfPause);
    last_ = now;
  }
  Clock::time_point since() const { return since_; }  // time of the first observation
  Clock::duration observed_for() const { return observed_for_; }

 private:
  Clock::time_point since_, last_;
  Clock::duration observed_for_{0};
};

// Whether a waiting rank is stopped; nothing while that is open. `has_heartbeat`: it has shown a
// heartbeat while this rank observed it, for `observed_for`. A rank that is not stopped shows one
// within `within`.
inline std::optional<bool> is_stopped_by(ProcessState state, bool has_heartbeat,
                                         Observation::Clock::duration observed_for,
                                         Observation::Clock::duration within) {
  // Where a whole host was stopped, its other ranks may go on a moment later.
  constexpr std::chrono::milliseconds kStoppedFor{100};
  if (state == ProcessState::kStopped)
    return observed_for < kStoppedFor ? std::nullopt : std::optional(true);
  if (has_heartbeat || state == ProcessState::kRunnable) return false;
  return observed_for < within ? std::nullopt : std::optional(true);
}

}  // namespace smp::waiting
