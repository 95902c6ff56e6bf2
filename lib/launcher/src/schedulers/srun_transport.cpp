#include "smp/launcher/schedulers/srun_transport.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <random>
#include <utility>

#include "smp/launcher/agent/agent.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/environment/variables.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/schedulers/slurm.h"
#include "smp/plan/base/errors.h"

namespace smp::schedulers {
namespace {

using std::chrono::milliseconds;

constexpr const char* kHostsVariable = "SMP_MEETING_HOSTS";  // names, in the job's node_rank
constexpr std::string_view kMappedV4 = "::ffff:";
constexpr int kTries = 64;                // of ports
constexpr milliseconds kForWords{5'000};  // of an agent, to come here by srun

// At all addresses; those of IPv4 where there are no others.
reach::Rendezvous endpoint_on_all_addresses(int port, const std::string& key) {
  try {
    return reach::Rendezvous({"::", port}, key);
  } catch (const ConfigError&) {
    return reach::Rendezvous({"0.0.0.0", port}, key);
  }
}

// Whoever lets srun's own connections through to this host lets these through.
reach::Rendezvous endpoint_of_srun(const std::string& key) {
  const auto [first, last] = ask_slurm_for_ports();
  if (first == 0) return endpoint_on_all_addresses(0, key);
  std::random_device random;
  std::uniform_int_distribution<int> any(first, last);
  for (int tries = 0; tries < kTries; ++tries) {
    try {
      return endpoint_on_all_addresses(any(random), key);
    } catch (const ConfigError&) {
      continue;  // somebody has it
    }
  }
  throw ConfigError(fmt::format(
      "--via srun: no port of Slurm's SrunPortRange ({}-{}) is free here: give one with "
      "--rendezvous ADDRESS:PORT",
      first, last));
}

reach::Rendezvous endpoint_at(const std::string& at) {
  const std::string key = make_rendezvous_key();
  return at.empty() ? endpoint_of_srun(key)
                    : reach::Rendezvous(reach::parse_rendezvous_endpoint("--rendezvous", at), key);
}

// Shorter than it is waited for, so that an agent that cannot come says why in time.
milliseconds time_of_agent(milliseconds time) { return time - std::min(kForWords, time / 2); }

const std::vector<hosts::HostSpec>& names_of_nodes(const std::vector<hosts::HostSpec>& hosts) {
  for (const hosts::HostSpec& host : hosts) {
    if (!host.user.empty() || host.port != 0)
      throw ConfigError(fmt::format(
          "--via srun takes node names only: leave user and port of host '{}' out", host.name));
  }
  return hosts;
}

std::string joined_names(const std::vector<hosts::HostSpec>& hosts) {
  std::string names;
  for (const hosts::HostSpec& host : hosts) names += (names.empty() ? "" : ",") + host.name;
  return names;
}

}  // namespace

SrunTransport::SrunTransport(const std::vector<hosts::HostSpec>& hosts,
                             const AllHostsOptions& options)
    : AllHostsTransport("srun", names_of_nodes(hosts), options, endpoint_at(options.at)) {}

// Beside other steps of the job, on all that the allocation has of each node. Slurm confines it,
// accounts for it, and ends it with the job. It orders the nodes as it likes, so an agent finds its
// place by the name that Slurm has for its node.
job::Command SrunTransport::command_for(const hosts::HostSpec&) const {
  const std::string names = joined_names(hosts());
  return {
      {"srun",
       fmt::format("--nodes={}", hosts().size()),
       fmt::format("--ntasks={}", hosts().size()),
       "--ntasks-per-node=1",
       "--nodelist=" + names,
       "--overlap",
       "--cpu-bind=none",
       "--mpi=none",
       "--input=none",
       "--kill-on-bad-exit=0",
       "--no-kill",
       "--wait=0",
       fmt::format("--export=HOME,USER,LOGNAME,SHELL,LANG,{},{}", kRendezvousKey, kHostsVariable),
       "--quiet",
       options().agent,
       "--agent",
       "--meet",
       options().at.empty() ? fmt::format(":{}", rendezvous().port()) : options().at,
       "--connect-timeout",
       fmt::format("{}ms", time_of_agent(options().time).count())},
      environment::merged_environment(environment::own_environment(),
                                      {fmt::format("{}={}", kRendezvousKey, key()),
                                       fmt::format("{}={}", kHostsVariable, names)}),
      ""};
}

std::set<std::string> SrunTransport::failed_by(const std::string& line) const {
  return nodes_failed_by(line);
}

// With srun the agents that came end too, for no fault of their own; nor is it that of those that
// did not, where srun names others.
void SrunTransport::are_missing(const std::vector<std::string>& missing, bool is_over) {
  const std::string place =
      options().at.empty()
          ? fmt::format("port {} of this host, which Slurm's SrunPortRange or --rendezvous sets",
                        rendezvous().port())
          : options().at;
  const std::string when =
      is_over       ? fmt::format("within {} to {}", hosts::duration_text(options().time), place)
      : has_ended() ? "before srun ended"
                    : "after srun reported a failure";
  const std::set<std::string> failed = failed_hosts();
  std::vector<std::string> named;
  std::string lines;
  for (size_t i = 0; i < missing.size(); ++i) {
    std::string& why = why_missing_[missing[i]];
    why = fmt::format("no agent connected {}: {}", when, words(missing[i]));
    if (failed.count(missing[i]) != 0) named.push_back(missing[i]);
    if (i < kListedHosts) lines += fmt::format("\n  host {}: {}", missing[i], why);
  }
  if (missing.size() > kListedHosts)
    lines += fmt::format("\n  and {} more", missing.size() - kListedHosts);
  if (has_ended())
    throw agent::HostsUnreachable(
        fmt::format("{} of {} hosts could not be used:{}", missing.size(), hosts().size(), lines),
        named.empty() ? missing : named, why_missing_);
}

reach::AgentStreams SrunTransport::open(const hosts::HostSpec& host) {
  if (const auto found = why_missing_.find(host.name); found != why_missing_.end())
    throw job::StartError(found->second);
  return AllHostsTransport::open(host);
}

reach::RendezvousEndpoint place_of_srun(const std::string& place, std::string address) {
  if (!place.starts_with(':')) return reach::parse_rendezvous_endpoint("--meet", place);
  if (address.empty())
    throw ConfigError(
        "Slurm has not set the address of the launching node (SLURM_LAUNCH_NODE_IPADDR): give "
        "--rendezvous");
  if (address.starts_with(kMappedV4) && address.find('.') != address.npos)
    address = address.substr(kMappedV4.size());
  const bool is_v6 = address.find(':') != address.npos;
  return reach::parse_rendezvous_endpoint(
      "--meet", fmt::format("{}{}{}{}", is_v6 ? "[" : "", address, is_v6 ? "]" : "", place));
}

int run_agent_of_srun(const std::string& place, const std::string& time) {
  const std::vector<std::string> environment = environment::own_environment();
  const std::optional<std::string> key = take_rendezvous_key();
  const std::string names = environment::value_in(environment, kHostsVariable).value_or("");
  const std::string own = environment::value_in(environment, "SLURMD_NODENAME").value_or("");
  unsetenv(kHostsVariable);
  if (!key || names.empty() || own.empty())
    throw ConfigError("--agent --meet is for srun, as smp-launch --via srun starts it");
  int node_rank = -1, hosts = 0;
  for (size_t at = 0; at < names.size(); ++hosts) {
    const size_t end = std::min(names.find(',', at), names.size());
    if (names.substr(at, end - at) == own) node_rank = hosts;
    at = end + 1;
  }
  if (node_rank < 0)
    throw ConfigError(fmt::format(
        "Slurm calls this node '{}', which is not in --hosts: give Slurm's names of the nodes",
        own));
  system::FileDescriptor channel;
  try {  // smp-launch finds the words about a node by its name
    channel = reach::join_rendezvous(
        place_of_srun(place,
                      environment::value_in(environment, "SLURM_LAUNCH_NODE_IPADDR").value_or("")),
        *key, {node_rank, 0, hosts}, hosts::parse_duration(time));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", own, error.what()));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", own, error.what()));
  }
  return agent::run_agent(std::move(channel));
}

}  // namespace smp::schedulers
