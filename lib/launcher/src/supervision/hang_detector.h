#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "smp/launcher/job/host.h"
#include "smp/launcher/job/job.h"
#include "smp/launcher/job/job_observer.h"
#include "smp/launcher/job/progress_watch.h"
#include "smp/launcher/output/console.h"
#include "smp/launcher/supervision/output_watch.h"
#include "supervision/stack_dump.h"

namespace smp::supervision {

// Detects that the ranks of a job hang, by the progress that they post and by their output. Reports
// the hang, has the ranks show where they are, and ends the job if the user asked for that. One
// thread.
class HangDetector {
 public:
  using Clock = std::chrono::steady_clock;

  HangDetector(const job::LaunchJob& job, job::Host& host, output::Console& console,
               Clock::time_point now);

  void wrote(int rank, Clock::time_point now);
  void ended(int rank, Clock::time_point now);
  void has_shown(int rank) { dump_.forget(rank); }  // its stacks

  Clock::time_point next_look() const { return next_look_; }
  // Reads the ranks' progress, and reports the end of a hang. `held`: the ranks' output waits for
  // the disk of the logs; this time does not count as a hang.
  void look(const std::vector<job::RankState>& ranks, Clock::time_point now, bool held);
  job::JobView view(Clock::time_point now) const { return progress_.view(now); }

  // Called after look(), while the job runs. The hang that ends the job, once the ranks have shown
  // where they are.
  std::optional<job::Hang> ends_job(Clock::time_point now);
  // A hang that was found now. Asks the ranks to show where they are.
  std::optional<job::Hang> found(const std::vector<job::RankState>& ranks, Clock::time_point now);

 private:
  const job::LaunchJob& job_;
  job::Host& host_;
  output::Console& console_;
  job::ProgressWatch progress_;
  OutputWatch output_watch_;
  StackDump dump_;
  Clock::time_point next_look_;
  std::optional<job::Hang> hang_;  // the job ends for it when the ranks have shown where they are
};

}  // namespace smp::supervision
