#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smp/launcher/hosts/host_list.h"

// The hosts of a job of LSF or PBS, by what these say to its processes. As with Slurm, one slot on
// every host says nothing about ranks: then their number stays open. Any thread. Throw ConfigError
// where this is no such job, or what is said of it does not agree.
namespace smp::schedulers {

// LSB_MCPU_HOSTS ("a 4 b 4"), and the file of LSB_DJOB_HOSTFILE (a line a slot).
std::vector<hosts::HostSpec> hosts_of_lsf(const std::vector<std::string>& environment);

// The file of PBS_NODEFILE (a line a slot), and PBS_NP where it is set.
std::vector<hosts::HostSpec> hosts_of_pbs(const std::vector<std::string>& environment);

// Hosts in the order in which they come first, with as many slots as lines. `name` stands in
// errors.
std::vector<hosts::HostSpec> parse_slot_lines(const std::string& name, std::string_view text);

// "a 4 b 4": a name, its slots.
std::vector<hosts::HostSpec> parse_slot_pairs(const std::string& name, std::string_view text);

}  // namespace smp::schedulers
