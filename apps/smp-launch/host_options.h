#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "smp/launcher/forwarding.h"
#include "smp/launcher/transport.h"

namespace CLI {
class App;
}

namespace smp {

constexpr const char* kSlurm = "slurm";  // as --hosts: those of Slurm's allocation

// What the user says about hosts; without any, ranks run on this one.
struct HostRequest {
  std::string hosts, hostfile, exclude;
  TransportOptions transport;
  std::string interface;  // whose address the ranks meet at
  std::chrono::milliseconds silence{3000};
  std::chrono::milliseconds connect_timeout{30'000};
  ForwardRules forward;

  bool several() const { return !hosts.empty() || !hostfile.empty(); }
};

// The options about hosts and environment, on their way from CLI11 into a HostRequest.
class HostOptions {
 public:
  HostOptions(CLI::App& app, HostRequest& request);
  // After the command line was parsed. Throws UsageError.
  void finish();

 private:
  HostRequest& request_;
  std::string silence_, connect_timeout_, env_file_;
};

}  // namespace smp
