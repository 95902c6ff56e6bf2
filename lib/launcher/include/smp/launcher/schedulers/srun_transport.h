#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "smp/launcher/schedulers/all_hosts_transport.h"

namespace smp::schedulers {

// One step of the Slurm allocation that smp-launch runs in, with an agent on every node. A node
// that is lost, or an agent that fails, takes no other one with it.
class SrunTransport final : public AllHostsTransport {
 public:
  // Throws ConfigError.
  SrunTransport(const std::vector<hosts::HostSpec>& hosts, const AllHostsOptions& options);

  job::Command command_for(const hosts::HostSpec& host) const override;  // the same for all
  // Throws StartError for a node whose agent has not come.
  reach::AgentStreams open(const hosts::HostSpec& host) override;
  // srun ends with the last agents, however they end; their channels do not lead through it.
  std::string why_command_ended() const override { return ""; }
  std::string words_about(const hosts::HostSpec& host) const override {
    return lines_about(host.name);
  }

 private:
  void are_missing(const std::vector<std::string>& hosts, bool is_over) override;
  std::set<std::string> failed_by(const std::string& line) const override;

  std::map<std::string, std::string> why_missing_;  // by host
};

// smp-launch --agent --meet [HOST]:PORT --connect-timeout TIME, as srun starts it. Returns the exit
// code. Throws ConfigError, std::runtime_error.
int run_agent_of_srun(const std::string& place, const std::string& time);

// Where that agent goes: without HOST to the address from which Slurm says that the step was made,
// which is empty where it does not. Throws ConfigError.
reach::RendezvousEndpoint place_of_srun(const std::string& place, std::string address);

}  // namespace smp::schedulers
