#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "smp/launcher/hosts/host_list.h"

// Which switches join the hosts of a job, as others tell it, and the order of hosts that follows.
// Pure functions; any thread. What is wrong is a ConfigError with its place.
namespace smp::schedulers {

struct NetworkTopology {
  // The switches above a host, from the top down, by every name that it goes by.
  std::map<std::string, std::vector<std::string>, std::less<>> switches_of;
};

struct TopologyText {
  std::string name;  // for errors
  std::string text;
};

// Each text is one of
//   Slurm's topology.conf, or what `scontrol show topology` prints: SwitchName=s0 Nodes=n[1-4]
//   what `aws ec2 describe-instance-topology` prints
//   what `aws ec2 describe-instances` prints: by which names and addresses the instances go
NetworkTopology parse_network_topology(const std::vector<TopologyText>& texts);

struct HostOrder {
  std::vector<hosts::HostSpec> hosts;
  std::string text;  // what became of it, in a line
};

// Hosts at one switch follow each other, so do the switches at one above them: the groups of a
// job, made of neighbours, cross as few switches as they can. Where there is a choice the order
// stays as it is, and so the first host stays the first. A host that is not known is at a switch of
// its own. Throws ConfigError if none is known.
HostOrder order_by_switches(std::vector<hosts::HostSpec> hosts, const NetworkTopology& topology,
                            const std::string& source);

}  // namespace smp::schedulers
