#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "smp/launcher/hosts/host_spec.h"

// The hosts of a job as users write them down. Pure functions; any thread. What is wrong is a
// ConfigError with its place.
namespace smp::hosts {

// --hosts: entries behind commas.
//   node[01-16,20]:8    a range, zeros kept; several of them in one name multiply
//   big:4@gpu=0,2-4     GPU ids: what follows the comma is one of them as long as it is a number
//   10.0.0.1:2222:8     port and slots
//   [fe80::1]:8  user@h
std::vector<HostSpec> parse_hosts(std::string_view text);

// --hostfile: a host or a range a line, '#' begins a comment. Reads what Open MPI (slots=,
// max_slots=), MPICH (host:slots), DeepSpeed (slots=) and plain lists of names write; gpu=0,2-4 is
// ours. `name` stands in errors.
std::vector<HostSpec> parse_host_file(const std::string& name, std::string_view text);

// --exclude: names and ranges, each of them in `hosts`. Something must be left.
std::vector<HostSpec> without_hosts(std::vector<HostSpec> hosts, std::string_view excluded);

// What the rest of the command line says about the number of ranks.
struct WantedRanks {
  int world_size = 0;          // -n; 0: not said
  int processes_per_host = 0;  // of a plan
  int hosts = 0;               // of a plan; 0: there is none
};

// Gives every host its slots: its own number, that of its GPUs, the plan's, an equal part of -n
// when no host says anything, or 1. The ranks of a plan may lie on other hosts than it was made for
// where each host says its slots, and they are as many in all. Throws a ConfigError that names both
// numbers when they do not agree.
void settle_slots(std::vector<HostSpec>& hosts, const WantedRanks& wanted);

int64_t slots_of(const std::vector<HostSpec>& hosts);

}  // namespace smp::hosts
