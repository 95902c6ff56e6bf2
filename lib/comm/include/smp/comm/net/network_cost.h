#pragma once

#include "smp/comm/net/exchange.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::net {

// The costs of the network between hosts as a cluster file gives them, by which an exchange is
// chosen. NetworkCost's own figure holds for what the file does not say of a hop, a message or a
// byte.
NetworkCost network_cost_of(const ClusterSpec& cluster);

}  // namespace smp::net
