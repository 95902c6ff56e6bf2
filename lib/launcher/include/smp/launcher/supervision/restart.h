#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "smp/launcher/job/job.h"
#include "smp/launcher/supervision/start.h"

// Whether a job whose ranks failed is started again. Pure functions; any thread.
namespace smp::supervision {

struct RestartRules {
  int most = 0;                           // --max-restarts
  std::chrono::milliseconds pause{1000};  // before the first; doubled for each after it
  static constexpr std::chrono::milliseconds kLongestPause{60'000};
};

Start start_of(const job::LaunchJob& job, const job::JobResult& result, const std::string& from);

struct RestartDecision {
  bool again = false;
  std::string why_not;  // empty where nobody asked for restarts, or none is due
  std::chrono::milliseconds pause{0};
};

// After the last of `starts`. `is_plan`: exit codes mean what those of smp-worker mean.
RestartDecision decide_restart(const RestartRules& rules, const std::vector<Start>& starts,
                               bool is_plan);

// "start 1 failed after 12.3 s at step 7: rank 2 was killed by ...".
std::string text_of(const Start& start, size_t number);

}  // namespace smp::supervision
