#pragma once

#include <signal.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "smp/launcher/job/job.h"
#include "smp/launcher/job/progress_watch.h"
#include "smp/launcher/supervision/restart.h"

namespace CLI {
class App;
}

namespace smp {

struct HostRequest;

// What the user says about ranks that fail, do not go on, or are to make room.
struct WatchRequest {
  job::HangLimit hang_limit;
  bool ends_on_hang = false;
  job::HangDump hang_dump = job::HangDump::kNone;
  supervision::RestartRules restarts;
  int spares = 0;
  std::string metrics_file;                                 // of Prometheus; empty: none
  bool samples_usage = true;                                // of the ranks, into the run folder
  std::optional<std::chrono::milliseconds> usage_interval;  // none: by the number of ranks
  std::set<int> checkpoint_signals{SIGUSR1};
  std::optional<std::chrono::milliseconds> checkpoint_grace;
};

// The options about it, on their way from CLI11 into a WatchRequest.
class WatchOptions {
 public:
  WatchOptions(CLI::App& app, WatchRequest& request);
  // After the command line was parsed. Throws UsageError.
  void finish(const HostRequest& hosts, bool is_plan);

 private:
  void finish_hang(bool is_plan);
  void finish_hang_dump(bool is_plan);
  void finish_restarts();
  void finish_checkpoints();
  void finish_usage();

  CLI::App& app_;
  WatchRequest& request_;
  std::string hang_timeout_, silence_, on_hang_, most_, pause_, spares_, signals_, grace_, usage_,
      hang_dump_;
};

}  // namespace smp
