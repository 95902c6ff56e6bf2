#pragma once

#include <string>
#include <vector>

#include "host_options.h"
#include "smp/launcher/hosts/host_list.h"

namespace smp {

// Puts the hosts in the order that follows from the switches between them, where something tells of
// these. Slurm is asked if --topology says so, else only if `asks`. Returns what to say about it;
// empty: nothing. Throws ConfigError.
std::string order_hosts(std::vector<hosts::HostSpec>& hosts, const HostRequest& request, bool asks);

}  // namespace smp
