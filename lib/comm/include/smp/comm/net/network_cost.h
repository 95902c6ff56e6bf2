#pragma once

#include "smp/comm/net/exchange.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::net {

// Returns the cost of the network between hosts from a cluster file; the choice of an exchange uses
// it. NetworkCost's default holds for each figure (of a hop, a message or a byte) that the file
// leaves out.
NetworkCost network_cost_of(const ClusterSpec& cluster);

}  // namespace smp::net
