#pragma once

#include "smp/comm/exchange.h"
#include "smp/plan/job_spec.h"

namespace smp {

// What a cluster file says of the network between its hosts, by which an exchange is chosen; where
// it says nothing of a hop, a message or a byte, NetworkCost's own figure.
NetworkCost network_cost_of(const ClusterSpec& cluster);

}  // namespace smp
