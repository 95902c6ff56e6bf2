#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "smp/launcher/agent/host_group.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/job/host.h"
#include "smp/launcher/reach/agent_transport.h"
#include "smp/launcher/request/prepared_job.h"

namespace smp::launch {

inline constexpr const char* kLoopback = "127.0.0.1";

// The hosts of a job, ready to start ranks: this host, or agents on other ones.
struct ReachedHosts {
  std::unique_ptr<reach::AgentTransport> transport;  // outlives `host`
  std::unique_ptr<job::Host> host;
  std::vector<std::string> names;              // none: this host
  std::vector<std::string> own_names;          // of those that come by themselves, else the same
  std::vector<environment::RankPlace> places;  // by rank
  std::vector<std::vector<int>> cpus;          // that it is bound to, by rank; empty: none is
  std::vector<std::string> next_to;            // what these are next to, by rank, as in "GPU 1"
  std::string master_address;
  int master_port = 0;
  std::vector<std::string> warnings;  // of GPUs that are in use, or have failed before
};

// Starts or waits for the agents, and sends them files. `port` is reserved for ranks on this host.
// `control_fd` is that of run_with_watchdog(); a signal there ends the wait. Returns a JobResult if
// the launch ended before any rank was started. Throws ConfigError.
std::variant<ReachedHosts, job::JobResult> reach_hosts(const request::PreparedJob& job,
                                                       const environment::ReservedPort& port,
                                                       int control_fd);

// The result of a job that a signal to smp-launch ended while no rank ran; 0: smp-launch died.
job::JobResult interrupted_by(int number);

// Makes the transport of --via. srun and mpirun start the agents of all hosts here, and are waited
// for. Returns a number if a signal ended the wait. Throws ConfigError, StartError,
// std::runtime_error.
std::optional<int> lead_to_hosts(const request::PreparedJob& job,
                                 const std::vector<hosts::HostSpec>& hosts, int control_fd,
                                 std::unique_ptr<reach::AgentTransport>& transport);

// How `hosts` hosts are reached: more than 64 by a tree of agents.
agent::HostGroupOptions group_options(const request::HostRequest& request, size_t hosts);

// The files that the ranks of a plan open on every host, under the same path as here: `plan`
// (unless it is empty), the data, and the weights to start from. Files of --push are not among
// them.
std::vector<agent::SharedFile> shared_files(const request::PreparedJob& job,
                                            const std::string& plan);

// The signals among USR1 and USR2 that end the job while no rank runs: those that ask for a
// checkpoint.
std::set<int> ending_signals(const request::PreparedJob& job);

}  // namespace smp::launch
