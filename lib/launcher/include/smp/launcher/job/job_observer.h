#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "smp/plan/runinfo/progress_page.h"
#include "smp/plan/system/host_usage.h"

namespace smp::job {

// How a job stands while its ranks run.
struct JobView {
  int ranks = 0;
  int running = 0;
  std::optional<runinfo::RankProgress> progress;  // of the first rank that posts any
  int64_t slowest_step = 0;                       // that a running rank is in; 0: unknown
  std::chrono::milliseconds silent{0};            // since a rank made progress, if ranks report it
};

// One thing that happened to a job.
struct JobEvent {
  std::string name;  // "rank_ended"
  std::optional<int> rank{};
  std::string text{};  // in words
};

// Is told how a job goes while it runs. Called from the supervisor's thread.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void on_look(const JobView& view) = 0;              // every half second
  virtual void on_usage(const system::HostUsage& usage) = 0;  // of one host
  virtual void on_event(const JobEvent& event) = 0;
};

}  // namespace smp::job
