#include "smp/comm/net/network_cost.h"

namespace smp::net {

NetworkCost network_cost_of(const ClusterSpec& cluster) {
  NetworkCost cost;
  if (cluster.inter_host_latency_s > 0) cost.hop_s = cluster.inter_host_latency_s;
  if (cluster.inter_host_message_s > 0) cost.message_s = cluster.inter_host_message_s;
  if (cluster.inter_host_bytes_per_s > 0)
    cost.byte_s = cost.next_byte_s = 1 / cluster.inter_host_bytes_per_s;
  if (cluster.inter_host_next_bytes_per_s > 0)
    cost.next_byte_s = 1 / cluster.inter_host_next_bytes_per_s;
  return cost;
}

}  // namespace smp::net
