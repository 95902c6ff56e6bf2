#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smp/comm/net/exchange_algorithm.h"

// The choice of the fastest algorithm of an exchange (exchange_algorithm.h). Pure; any thread.
namespace smp::net {

// The cost of a network in the alpha-beta model. The default times were measured over TCP between
// hosts made of network namespaces (docs/lab/figures-collectives.md). They come from a gather of
// small parts between two hosts, and from the 12 messages of a reduce_scatter between four hosts
// whose work shares two cores. The rates are unknown: a byte costs nothing by default.
struct NetworkCost {
  double hop_s = 5.4e-6;      // latency: from a send until the receiver has the message
  double message_s = 3.8e-6;  // of each further message that the same host sends and receives
  double byte_s = 0;          // of a byte to any host
  double next_byte_s = 0;     // to the next host: they may share a switch
};

// Seconds until each of `hosts` hosts has the parts of all hosts, `bytes` each.
double exchange_s(Exchange exchange, int64_t hosts, int64_t bytes, const NetworkCost& cost,
                  bool takes_any_memory = true);

// How a job chooses its exchanges. All ranks of a job need the same rule.
struct ExchangeRule {
  std::optional<NetworkCost> cost;
  std::string cost_of = "smp's own costs";  // its source, for the line about the network
  std::optional<Exchange> pinned;
  bool takes_any_memory = true;  // takes_any_memory() of the network

  NetworkCost network() const { return cost.value_or(NetworkCost()); }
  Exchange choice(int64_t hosts, int64_t bytes) const;  // the pinned one, or the fastest
};

// Write and read a cost as the text of an environment variable: "6e-06,2e-06,8e-10,8e-10". Reading
// throws std::invalid_argument that says what is wrong.
std::string text_of(const NetworkCost& cost);
NetworkCost network_cost_of(const std::string& text);

}  // namespace smp::net
