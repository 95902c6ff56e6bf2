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

// Where the ranks of a job go, ready to start them: this host, or agents on others.
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

// `port` is reserved on this host, for ranks that run here. `control_fd` is that of
// run_with_watchdog(): a signal there ends the waiting. What ended a launch before it began is a
// JobResult. Throws ConfigError.
std::variant<ReachedHosts, job::JobResult> reach_hosts(const request::PreparedJob& job,
                                                       const environment::ReservedPort& port,
                                                       int control_fd);

// A signal to smp-launch, or its death (0), came while no rank ran.
job::JobResult interrupted_by(int number);

// The way to these hosts, by --via; one that starts all agents at once has done so, and waited for
// them. A number when a signal has ended the waiting. Throws ConfigError, StartError,
// std::runtime_error.
std::optional<int> lead_to_hosts(const request::PreparedJob& job,
                                 const std::vector<hosts::HostSpec>& hosts, int control_fd,
                                 std::unique_ptr<reach::AgentTransport>& transport);

// How so many hosts are reached: above 64 by a tree of agents.
agent::HostGroupOptions group_options(const request::HostRequest& request, size_t hosts);

// What the ranks of a plan open on every host, under the path that it has here: `plan` (none when
// it is empty), the data, the weights to start from; not what they are pushed.
std::vector<agent::SharedFile> shared_files(const request::PreparedJob& job,
                                            const std::string& plan);

// USR1 and USR2 are for ranks; where there is none yet, those that ask for a checkpoint end the
// job.
std::set<int> ending_signals(const request::PreparedJob& job);

}  // namespace smp::launch
