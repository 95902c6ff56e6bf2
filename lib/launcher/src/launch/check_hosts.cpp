#include "smp/launcher/launch/check_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "reach_hosts.h"
#include "smp/launcher/agent/host_group.h"
#include "smp/launcher/health/host_health.h"
#include "smp/launcher/probe/network_probe.h"
#include "smp/launcher/reach/agent_transport.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/plan/base/errors.h"

namespace smp::launch {
namespace {

constexpr std::chrono::seconds kPatience{5};  // with a connection between two hosts

health::HealthRequirements requirements_of(const request::PreparedJob& job, int64_t ranks) {
  health::HealthRequirements requirements;
  requirements.ranks = ranks;
  if (!job.plan) return requirements;
  if (job.plan->job.cluster.device == DeviceKind::kCuda) {
    requirements.gpus = ranks;
    return requirements;
  }
  int64_t most = 0;
  for (const auto& rank : job.plan->predictions.ranks) most = std::max(most, rank.peak_bytes);
  requirements.memory_bytes = ranks * most;
  return requirements;
}

// The address of each reached host at which the other hosts would reach its ranks.
std::vector<std::string> rendezvous_addresses(const request::PreparedJob& job,
                                              const std::vector<hosts::HostSpec>& all,
                                              const agent::HostGroup& group,
                                              std::vector<health::CheckedHost>& hosts) {
  const std::string& interface = job.request.hosts.interface;
  std::vector<std::string> addresses(all.size());
  std::set<std::string> networks;
  for (size_t i = 0; i < all.size(); ++i) {
    if (hosts[i].why_not.empty()) networks.insert(group.about(static_cast<int>(i)).network);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (!hosts[i].why_not.empty()) continue;
    try {
      addresses[i] = networks.size() == 1 && interface.empty()
                         ? kLoopback
                         : agent::address_of(all[i], group.about(static_cast<int>(i)), interface);
    } catch (const ConfigError& error) {
      hosts[i].unreached.push_back(fmt::format("the others: {}", error.what()));
    }
  }
  return addresses;
}

// Which hosts can connect to which others.
void probe(const request::PreparedJob& job, const std::vector<hosts::HostSpec>& all,
           agent::HostGroup& group, std::vector<health::CheckedHost>& hosts) {
  std::vector<std::string> names;
  for (const hosts::HostSpec& host : all) names.push_back(host.name);
  std::vector<probe::ProbedHost> probed =
      probe::probe_network(group, names, rendezvous_addresses(job, all, group, hosts),
                           job.request.hosts.transport.agent, kPatience);
  for (size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].reached_us = std::move(probed[i].reached_us);
    hosts[i].link = text_of(probed[i].link);
    hosts[i].link_mbps = probed[i].link.speed_mbps;
    for (std::string& other : probed[i].unreached) hosts[i].unreached.push_back(std::move(other));
  }
}

// Makes the transport to the hosts that can be reached, and takes the others out of `hosts`. srun
// and mpirun end when one agent cannot start, so they are started again without that host. Returns
// why, by host.
std::map<std::string, std::string> lead_to_some(const request::PreparedJob& job,
                                                std::vector<hosts::HostSpec>& hosts,
                                                std::unique_ptr<reach::AgentTransport>& transport) {
  std::map<std::string, std::string> why_not;
  while (!hosts.empty()) {
    try {
      lead_to_hosts(job, hosts, -1, transport);
      break;
    } catch (const agent::HostsUnreachable& error) {
      const size_t before = hosts.size();
      for (const std::string& name : error.hosts) {
        const auto why = error.why.find(name);
        why_not[name] = why == error.why.end() ? error.what() : why->second;
        std::erase_if(hosts, [&](const hosts::HostSpec& host) { return host.name == name; });
      }
      if (hosts.size() == before) throw;  // it would be the same again
    }
  }
  return why_not;
}

std::vector<health::CheckedHost> reached_hosts(const request::PreparedJob& job,
                                               const std::vector<hosts::HostSpec>& all,
                                               reach::AgentTransport& transport) {
  const request::HostRequest& request = job.request.hosts;
  agent::HostGroupOptions options = group_options(request, all.size());
  options.asks_health = true;
  options.runs_here = request.push.empty();
  options.shared = shared_files(job, "");
  agent::HostGroup group(all, transport, options);
  try {
    group.connect(-1);
  } catch (const agent::HostsUnreachable&) {
    // each host has a row of the table with its reason
  }
  std::vector<health::CheckedHost> hosts;
  for (size_t i = 0; i < all.size(); ++i) {
    const int number = static_cast<int>(i);
    health::CheckedHost host;
    host.name = all[i].name;
    host.why_not = group.why_not_reached(number).why;
    host.requirements = requirements_of(job, all[i].slots);
    host.requirements.these_gpus = all[i].gpus;
    for (const int gpu : all[i].gpus)
      host.requirements.gpus = std::max<int64_t>(host.requirements.gpus, gpu + 1);
    const agent::HostFacts facts = group.about(number);
    if (facts.health) host.health = *facts.health;
    host.clock_skew_ms = facts.clock_skew_ms;
    hosts.push_back(std::move(host));
  }
  if (all.size() > 1) probe(job, all, group, hosts);
  return hosts;
}

std::vector<health::CheckedHost> checked_hosts(const request::PreparedJob& job) {
  std::vector<hosts::HostSpec> all = job.hosts;
  for (hosts::HostSpec spare : job.spares) {  // one day it may run the ranks of any host
    if (spare.slots == 0) spare.slots = job.hosts.front().slots;
    all.push_back(std::move(spare));
  }
  schedulers::require_allocation(job.request.hosts);
  std::unique_ptr<reach::AgentTransport> transport;
  std::vector<hosts::HostSpec> some = all;
  const std::map<std::string, std::string> why_not = lead_to_some(job, some, transport);
  std::vector<health::CheckedHost> hosts;
  if (!some.empty()) hosts = reached_hosts(job, some, *transport);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto why = why_not.find(all[i].name);
    if (why == why_not.end()) continue;
    health::CheckedHost host;
    host.name = all[i].name;
    host.why_not = why->second;
    hosts.insert(hosts.begin() + static_cast<std::ptrdiff_t>(i), std::move(host));
  }
  return hosts;
}

}  // namespace

Report check_hosts(const request::PreparedJob& job) {
  std::vector<health::CheckedHost> hosts;
  if (job.hosts.empty()) {
    health::CheckedHost host;
    host.health = health::own_health();
    host.name = host.health.name;
    host.requirements = requirements_of(job, job.world_size);
    hosts.push_back(std::move(host));
  } else {
    hosts = checked_hosts(job);
  }
  health::HostTable table = health::table_of(hosts);
  return {std::move(table.text), table.ok};
}

}  // namespace smp::launch
