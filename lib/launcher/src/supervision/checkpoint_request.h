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
  int number() const { return number_; }  // the signal that made the request; 0: no request
  void make(int number, bool elsewhere) {
    number_ = number;
    since_ = Clock::now();
    is_elsewhere_ = elsewhere;
  }
  // Whether a signal on this host, after the request was made, is a second request. It is not if
  // the first one was reported by another host: a user may signal all hosts at once.
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
  bool is_elsewhere_ = false;  // made on another host, with no signal on this host yet
  Clock::time_point since_;
};

}  // namespace smp::supervision
