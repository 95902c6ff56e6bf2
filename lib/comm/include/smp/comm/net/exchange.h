#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// How each host of a group gets the parts of all others, in an all_gather, a barrier and an
// all_reduce of up to kOneShotBytes, and which way takes the least time. All ways move the same
// bytes and leave the same bits: who sums does it last, in rank order. Pure; any thread.
namespace smp::net {

enum class Exchange {
  kMesh,      // every host sends its part to every other: one hop
  kRing,      // each part goes from host to host, all round: hosts - 1 hops
  kDoubling,  // a host hands on all that it has, to the 1st, 2nd, 4th ... before it: log2 hops
};
inline constexpr Exchange kExchanges[] = {Exchange::kMesh, Exchange::kRing, Exchange::kDoubling};
std::string_view name_of(Exchange exchange);  // "mesh", "ring", "doubling"

// A network by the alpha-beta model. The times are those of docs/lab/figures-collectives.md, TCP
// between hosts made of namespaces: a gather of small parts between two, and the 12 messages of a
// reduce_scatter between four, whose work two cores share. The rates are unknown, and cost nothing.
struct NetworkCost {
  double hop_s = 5.4e-6;      // until its receiver has a message
  double message_s = 3.8e-6;  // that each more takes which the same host sends and takes
  double byte_s = 0;          // of a byte to any host
  double next_byte_s = 0;     // to the next host: they may share a switch
};

// Bytes of a message of what has so many for one peer. What is longer than kMessageBytes goes in
// pieces (lib/comm/src/net/parcel.h), of which a network that wants registered memory takes no
// longer ones.
int64_t message_bytes(int64_t all, bool takes_any_memory = true);

// Until each of `hosts` hosts has the parts of all, of `bytes` each.
double exchange_s(Exchange exchange, int64_t hosts, int64_t bytes, const NetworkCost& cost,
                  bool takes_any_memory = true);

// What all ranks of a job must be told alike.
struct ExchangeRule {
  std::optional<NetworkCost> cost;
  std::string cost_of = "smp's own costs";  // where it is from, for the line that names the network
  std::optional<Exchange> pinned;
  bool takes_any_memory = true;  // the network

  NetworkCost network() const { return cost.value_or(NetworkCost()); }
  Exchange choice(int64_t hosts, int64_t bytes) const;  // the pinned one, or the quickest
};

// "6e-06,2e-06,8e-10,8e-10": the times of a cost as an environment variable has them. The other
// throws std::invalid_argument that says what is wrong.
std::string text_of(const NetworkCost& cost);
NetworkCost network_cost_of(const std::string& text);

}  // namespace smp::net
