#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "smp/launcher/job/job_observer.h"
#include "smp/plan/runinfo/progress_page.h"

namespace smp::job {

// A hang: no rank makes progress, or none writes. Where each is, and for whom the others wait.
struct Hang {
  struct Place {
    std::vector<int> ranks;  // ascending
    std::string where;       // "step 3: forward, microbatch 0; waits in collective 42 (...)"
  };
  bool by_output = false;  // it is their output that has stopped
  std::chrono::milliseconds silent{0};
  std::vector<int> behind;    // ascending; empty: they wait for each other
  std::vector<Place> places;  // those behind first
};

// "no rank has made progress for 60.0 s; the others wait for rank 1", and a line for each place.
std::string text_of(const Hang& hang);

// "step 312: forward, microbatch 1, layer 7; waits in collective 9121 (tensor.forward)"
std::string text_of(const runinfo::RankProgress& at, bool stopped);

// When the ranks count as hung.
struct HangLimit {
  // None: ten times the longest of the last steps, at least a minute; ten before the first step.
  std::optional<std::chrono::milliseconds> time;
  bool off = false;
  std::optional<std::chrono::milliseconds> output_timeout{};  // of output; none: it may stop
};

// Detects a hang by the progress that the ranks post. A job with a rank that posts nothing is never
// taken for hung. One thread.
class ProgressWatch {
 public:
  using Clock = std::chrono::steady_clock;

  ProgressWatch(HangLimit limit, size_t ranks, Clock::time_point now)
      : limit_(limit), ranks_(ranks), moved_at_(now) {}

  // What rank has posted by now.
  void see(int rank, std::optional<runinfo::RankProgress> progress, bool stopped,
           Clock::time_point now);
  void forget(int rank, Clock::time_point now);  // it has ended
  // This process itself did not run for `time`, until now. That time counts against no rank.
  void overlook(Clock::duration time, Clock::time_point now);

  // Once for each time that all ranks stand still.
  std::optional<Hang> hang(Clock::time_point now);
  // How long they had stood still, once, when they go on after that.
  std::optional<std::chrono::milliseconds> recovery();

  std::chrono::milliseconds limit() const;
  // Time since a rank made progress.
  std::chrono::milliseconds silent(Clock::time_point now) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - moved_at_);
  }
  // Of those ranks that have not been forgotten.
  JobView view(Clock::time_point now) const;

 private:
  struct Rank {
    std::optional<runinfo::RankProgress> at;
    bool running = true;
    bool stopped = false;
  };

  void moved(Clock::time_point now);
  std::vector<int> behind() const;
  Hang describe(Clock::time_point now) const;

  HangLimit limit_;
  std::vector<Rank> ranks_;
  Clock::time_point moved_at_;
  std::optional<Clock::time_point> told_since_;  // hang() has told of this standstill
  std::optional<std::chrono::milliseconds> recovered_;
  double longest_step_s_ = 0;
};

}  // namespace smp::job
