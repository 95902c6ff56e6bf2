#pragma once

#include <string>
#include <vector>

#include "host_options.h"
#include "smp/launcher/hosts/host_list.h"

namespace smp {

// What --hosts says by a word instead of names. `auto` becomes the word of whose variables are
// here, and request.notes say which; `sagemaker` and `k8s` become a start by hand on each host,
// `local` this host. Throws UsageError.
void resolve_hosts(HostRequest& request);

// The hosts that --hosts or --hostfile names, or Slurm, LSF or PBS. Throws ConfigError.
std::vector<hosts::HostSpec> named_hosts(const HostRequest& request);

}  // namespace smp
