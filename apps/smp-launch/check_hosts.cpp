#include "check_hosts.h"

#include <algorithm>
#include <vector>

#include "reach_hosts.h"
#include "smp/launcher/host_group.h"
#include "smp/launcher/host_health.h"
#include "smp/launcher/transport.h"

namespace smp {
namespace {

HealthWish wish_of(const PreparedJob& job, int64_t ranks) {
  HealthWish wish;
  wish.ranks = ranks;
  if (!job.plan) return wish;
  if (job.plan->job.cluster.device == DeviceKind::kCuda) {
    wish.gpus = ranks;
    return wish;
  }
  int64_t most = 0;
  for (const auto& rank : job.plan->predictions.ranks) most = std::max(most, rank.peak_bytes);
  wish.memory_bytes = ranks * most;
  return wish;
}

std::vector<CheckedHost> checked_hosts(const PreparedJob& job) {
  const HostRequest& request = job.request.hosts;
  std::vector<HostSpec> all = job.hosts;
  for (HostSpec spare : job.spares) {  // one day it may run the ranks of any host
    if (spare.slots == 0) spare.slots = job.hosts.front().slots;
    all.push_back(std::move(spare));
  }
  const auto transport = make_transport(request.transport);
  HostGroupOptions options = group_options(request, all.size());
  options.asks_health = true;
  options.runs_here = request.push.empty();
  options.shared = shared_files(job, "");
  HostGroup group(all, *transport, options);
  try {
    group.connect(-1);
  } catch (const HostsUnreachable&) {
    // each is told by itself
  }
  std::vector<CheckedHost> hosts;
  for (size_t i = 0; i < all.size(); ++i) {
    const int number = static_cast<int>(i);
    CheckedHost host;
    host.name = all[i].name;
    host.why_not = group.why_not_reached(number).why;
    host.wish = wish_of(job, all[i].slots);
    host.wish.these_gpus = all[i].gpus;
    for (const int gpu : all[i].gpus) host.wish.gpus = std::max<int64_t>(host.wish.gpus, gpu + 1);
    const HostFacts facts = group.about(number);
    if (facts.health) host.health = *facts.health;
    host.clock_skew_ms = facts.clock_skew_ms;
    hosts.push_back(std::move(host));
  }
  return hosts;
}

}  // namespace

Report check_hosts(const PreparedJob& job) {
  std::vector<CheckedHost> hosts;
  if (job.hosts.empty()) {
    CheckedHost host;
    host.health = own_health();
    host.name = host.health.name;
    host.wish = wish_of(job, job.world_size);
    hosts.push_back(std::move(host));
  } else {
    hosts = checked_hosts(job);
  }
  HostTable table = table_of(hosts);
  return {std::move(table.text), table.ok};
}

}  // namespace smp
