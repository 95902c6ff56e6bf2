#pragma once

#include <cstdint>
#include <string_view>

// Algorithms by which each host of a group gets the parts of all others. An all_gather, a barrier
// and an all_reduce of up to kOneShotBytes use them. All algorithms move the same bytes and give
// the same bits: sums are made at the end, in rank order. Pure; any thread.
namespace smp::net {

enum class Exchange {
  kMesh,      // every host sends its part to every other: one hop
  kRing,      // each part goes from host to host, all round: hosts - 1 hops
  kDoubling,  // a host hands on all that it has, to the 1st, 2nd, 4th ... before it: log2 hops
};
inline constexpr Exchange kExchanges[] = {Exchange::kMesh, Exchange::kRing, Exchange::kDoubling};
std::string_view name_of(Exchange exchange);  // "mesh", "ring", "doubling"

// Bytes of one message of a transfer of `all` bytes to one peer. A transfer longer than
// kMessageBytes goes in pieces (lib/comm/src/net/wire_message.h). A network that requires
// registered memory takes no longer pieces than messages.
int64_t message_bytes(int64_t all, bool takes_any_memory = true);

}  // namespace smp::net
