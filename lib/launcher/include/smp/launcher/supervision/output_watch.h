#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "smp/launcher/job/progress_watch.h"

namespace smp::supervision {

// Detects a hang of programs, which post no progress: no rank has written anything for the limit.
// One thread.
class OutputWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // No limit: nothing is ever found.
  OutputWatch(std::optional<std::chrono::milliseconds> limit, size_t ranks, Clock::time_point now)
      : limit_(limit), wrote_at_(ranks, now), running_(ranks, true), moved_at_(now) {}

  void wrote(int rank, Clock::time_point now);
  void forget(int rank, Clock::time_point now);  // it has ended
  // As of ProgressWatch.
  void overlook(Clock::duration time, Clock::time_point now);
  std::optional<job::Hang> hang(Clock::time_point now);
  std::optional<std::chrono::milliseconds> recovery();

 private:
  void moved(Clock::time_point now);

  std::optional<std::chrono::milliseconds> limit_;
  std::vector<Clock::time_point> wrote_at_;
  std::vector<bool> running_;
  Clock::time_point moved_at_;
  bool told_ = false;  // hang() has told of this silence
  std::optional<std::chrono::milliseconds> recovered_;
};

}  // namespace smp::supervision
