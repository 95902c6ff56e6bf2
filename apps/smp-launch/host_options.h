#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "meeting_options.h"
#include "smp/launcher/forwarding.h"
#include "smp/launcher/transport.h"

namespace CLI {
class App;
}

namespace smp {

// As --hosts: those of Slurm's allocation, or of SageMaker's training job.
constexpr const char* kSlurm = "slurm";
constexpr const char* kSageMaker = "sagemaker";

// What the user says about hosts; without any, ranks run on this one.
struct HostRequest {
  std::string hosts, hostfile, exclude;
  TransportOptions transport;
  std::string interface;  // whose address the ranks meet at
  std::chrono::milliseconds silence{3000};
  std::chrono::milliseconds connect_timeout{30'000};
  ForwardRules forward;

  MeetingRequest meeting;
  bool sagemaker = false;  // this is a training job of SageMaker

  bool several() const { return !hosts.empty() || !hostfile.empty() || meeting.wanted(); }
};

// The options about hosts and environment, on their way from CLI11 into a HostRequest.
class HostOptions {
 public:
  HostOptions(CLI::App& app, HostRequest& request);
  // After the command line was parsed; `prints`: for a dry run. Throws UsageError.
  void finish(bool prints);

 private:
  void check_meeting() const;

  HostRequest& request_;
  std::string silence_, connect_timeout_, env_file_;
  MeetingOptions meeting_;
};

}  // namespace smp
