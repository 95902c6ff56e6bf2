#pragma once

#include <string>

#include "rendezvous_options.h"
#include "smp/launcher/request/launch_request.h"

namespace CLI {
class App;
}

namespace smp {

// The options about hosts and environment, from CLI11 into a HostRequest.
class HostOptions {
 public:
  HostOptions(CLI::App& app, request::HostRequest& request);
  // After the command line was parsed; `prints`: for a dry run. Throws UsageError.
  void finish(bool prints);

 private:
  void check_rendezvous() const;
  void read_env_file();
  void check_variables() const;

  request::HostRequest& request_;
  std::string host_timeout_, connect_timeout_, env_file_, fan_out_, visible_gpus_;
  RendezvousOptions rendezvous_;
};

}  // namespace smp
