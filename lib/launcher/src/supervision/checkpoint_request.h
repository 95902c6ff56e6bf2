#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "smp/launcher/job/job.h"

namespace smp::supervision {

// A request for a checkpoint, made by a signal on this host or on another one of the job. The job
// may limit the time for it.
class CheckpointRequest {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CheckpointRequest(const job::LaunchJob& job) : job_(job) {}

  bool is_made_by(int number) const {
    return job_.saves_on_request && job_.rules.checkpoint_signals.count(number) != 0;
  }
  int number() const { return number_; }  // of the signal that has made it; 0: none has
  void make(int number, bool elsewhere) {
    number_ = number;
    since_ = Clock::now();
    is_elsewhere_ = elsewhere;
  }
  // Whether a signal that comes here, after the request was made, says more than the request.
  // Whoever signals one host may signal all: what another one has told first is the same.
  bool is_followed_by(int number) {
    return number_ != 0 && !(is_made_by(number) && std::exchange(is_elsewhere_, false));
  }
  std::optional<Clock::time_point> ends_at() const {
    if (number_ == 0 || !job_.rules.checkpoint_grace) return std::nullopt;
    return since_ + *job_.rules.checkpoint_grace;
  }

 private:
  const job::LaunchJob& job_;
  int number_ = 0;
  bool is_elsewhere_ = false;  // it was made at another host, and has not come here
  Clock::time_point since_;
};

}  // namespace smp::supervision
