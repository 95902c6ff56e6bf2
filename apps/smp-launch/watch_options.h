#pragma once

#include <string>

#include "smp/launcher/request/launch_request.h"

namespace CLI {
class App;
}

namespace smp {

// The options about failures, hangs and restarts, from CLI11 into a WatchRequest.
class WatchOptions {
 public:
  WatchOptions(CLI::App& app, request::WatchRequest& request);
  // After the command line was parsed. Throws UsageError.
  void finish(const request::HostRequest& hosts, bool is_plan);

 private:
  void finish_hang(bool is_plan);
  void finish_hang_dump(bool is_plan);
  void finish_restarts();
  void finish_checkpoints();
  void finish_usage();

  CLI::App& app_;
  request::WatchRequest& request_;
  std::string hang_timeout_, silence_timeout_, on_hang_, most_, pause_, spares_, signals_, grace_,
      usage_, hang_dump_;
};

}  // namespace smp
