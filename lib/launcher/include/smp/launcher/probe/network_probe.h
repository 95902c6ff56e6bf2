#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "smp/launcher/agent/host_group.h"

// Whether every host of a job can open a TCP connection to every other one, as its ranks will. On
// each a process (smp-launch --probe) listens at the address that the ranks would meet at, and
// connects to all others; it is started, told and heard through the hosts' agents, so that nothing
// else is needed than they.
namespace smp::probe {

// A network interface of a host, as the kernel tells of it.
struct LinkFacts {
  std::string name;    // empty: none has the address
  std::string state;   // "up", "down", "unknown" (those of virtual machines)
  int speed_mbps = 0;  // 0: not known
};

// That of this host which has the address. `root` stands before /sys, for tests.
LinkFacts link_of_address(const std::string& address, const std::string& root = "");

// Those that others can reach this host at, and their interfaces: "10.0.0.1 (eth0, up, 25 Gb/s)".
std::vector<std::string> own_links();

// "eth0, up, 25 Gb/s"
std::string text_of(const LinkFacts& link);

// What was seen from one host.
struct ProbedHost {
  std::string address;
  LinkFacts link;
  std::vector<int> reached_us;         // time to connect, of each host that was reached
  std::vector<std::string> unreached;  // "host c at 10.0.0.3: connection refused"
};

// Asks the hosts of a group that are reached; `addresses` by host, empty for one that is not. Takes
// twice `patience` at most. `program` is smp-launch on the hosts.
std::vector<ProbedHost> probe_network(agent::HostGroup& group,
                                      const std::vector<std::string>& names,
                                      const std::vector<std::string>& addresses,
                                      const std::string& program,
                                      std::chrono::milliseconds patience);

// The process on a host: speaks over its standard input and output. Returns the exit code.
int run_probe();

}  // namespace smp::probe
