#include <fmt/format.h>

#include "smp/launcher/schedulers/network_topology.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/launcher/schedulers/slurm.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"

namespace smp::schedulers {
namespace {

constexpr size_t kFewestOrdered = 3;  // two are neighbours in any order

std::string ordered(std::vector<hosts::HostSpec>& hosts, const std::vector<TopologyText>& texts,
                    const std::string& source) {
  HostOrder order = order_by_switches(hosts, parse_network_topology(texts), source);
  if (hosts.size() < kFewestOrdered) return "";
  hosts = std::move(order.hosts);
  return order.text;
}

}  // namespace

std::string order_hosts(std::vector<hosts::HostSpec>& hosts, const request::HostRequest& request,
                        bool asks) {
  const std::vector<std::string>& said = request.topology;
  if (said.empty()) {
    if (request.hosts != request::kSlurm || hosts.size() < kFewestOrdered) return "";
    if (!asks)
      return "hosts in Slurm's order: a launch, or --topology slurm, asks Slurm for their switches";
    try {
      const std::string text = schedulers::ask_slurm_for_switches();
      return text.empty() ? "" : ordered(hosts, {{request::kSlurm, text}}, request::kSlurm);
    } catch (const ConfigError& error) {  // nobody has asked for it
      return fmt::format("hosts in Slurm's order, because their switches are unknown: {}",
                         error.what());
    }
  }
  if (said.front() == request::kOff) return "";
  if (said.front() == request::kSlurm) {
    const std::string text = schedulers::ask_slurm_for_switches();
    if (text.empty())
      throw ConfigError(
          "--topology slurm: Slurm has no topology of switches (TopologyPlugin): leave --topology "
          "out");
    return ordered(hosts, {{request::kSlurm, text}}, request::kSlurm);
  }
  std::vector<TopologyText> texts;
  for (const std::string& file : said)
    texts.push_back({file, files::read_text_file(file, "file of switches")});
  return ordered(hosts, texts, said.front());
}

}  // namespace smp::schedulers
