#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/launcher/health/host_health.h"
#include "smp/launcher/hosts/host_list.h"

namespace smp::agent {

// What an agent says of its host.
struct HostFacts {
  std::string name;  // what it calls itself
  int cpus = 1;
  int port = 0;                              // kept free there for the ranks to meet at; 0: none
  std::vector<std::string> addresses;        // "eth0=10.0.0.1"
  std::string network;                       // equal where the loopback interface is the same one
  std::string reached_at;                    // the address under which ssh reached it; may be empty
  std::optional<health::HostHealth> health;  // where it was asked for
  int64_t clock_skew_ms = 0;                 // with it
  std::string topology;                      // of its CPUs (parse_topology), where it was asked for
};

// The address of `host` that the other hosts reach it at: of the network interface that is named,
// or else the one that it was named by or reached at, or its first. Throws ConfigError if it has no
// such interface.
std::string address_of(const hosts::HostSpec& host, const HostFacts& facts,
                       const std::string& interface);

}  // namespace smp::agent
