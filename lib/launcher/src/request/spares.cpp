#include "smp/launcher/request/spares.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "smp/plan/base/errors.h"

namespace smp::request {
namespace {

std::set<std::string> lost_hosts(const job::LaunchJob& job, const job::JobResult& result) {
  std::set<std::string> lost(result.unreachable.begin(), result.unreachable.end());
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    if (!result.ranks[rank].lost.empty() && !result.ranks[rank].lost_through_other)
      lost.insert(job.hosts[static_cast<size_t>(job.host_of_rank[rank])]);
  }
  return lost;
}

}  // namespace

bool has_room(const hosts::HostSpec& spare, int slots) {
  if (!spare.gpus.empty()) return static_cast<int>(spare.gpus.size()) == slots;
  return spare.slots == 0 || spare.slots >= slots;
}

std::vector<hosts::HostSpec> take_spares(std::vector<hosts::HostSpec>& hosts, int count) {
  if (count >= static_cast<int>(hosts.size()))
    throw ConfigError(fmt::format(
        "--spares {}: the job has {} hosts, and at least one must run ranks: give fewer spares",
        count, hosts.size()));
  const auto first = hosts.end() - count;
  std::vector<hosts::HostSpec> spares(first, hosts.end());
  hosts.erase(first, hosts.end());
  return spares;
}

std::vector<std::string> replace_lost_hosts(PreparedJob& prepared, const job::LaunchJob& job,
                                            const job::JobResult& result) {
  std::vector<std::string> lines;
  const std::set<std::string> lost = lost_hosts(job, result);
  for (hosts::HostSpec& host : prepared.hosts) {
    if (lost.count(host.name) == 0) continue;
    const auto spare =
        std::find_if(prepared.spares.begin(), prepared.spares.end(),
                     [&](const hosts::HostSpec& one) { return has_room(one, host.slots); });
    if (spare == prepared.spares.end()) {
      lines.push_back(fmt::format(
          "no spare host is left for host {}: the next start tries this host again", host.name));
      continue;
    }
    lines.push_back(fmt::format("host {} takes the place of host {}", spare->name, host.name));
    spare->slots = host.slots;
    host = std::move(*spare);
    prepared.spares.erase(spare);
  }
  return lines;
}

}  // namespace smp::request
