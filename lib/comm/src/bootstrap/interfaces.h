#pragma once

#include <optional>
#include <string>
#include <vector>

namespace smp::bootstrap {

// A network interface of this host with an IP address.
struct Interface {
  // A bridge joins what is on this host (containers); a card leads out of it, others may.
  enum class Kind { kBridge, kOther, kCard };
  std::string name, address;  // "eth0", "10.0.1.7"
  std::optional<int> node;    // NUMA node of its card, where it is told
  Kind kind = Kind::kCard;
};

// All that are up, in the kernel's order. Throws std::system_error.
std::vector<Interface> own_interfaces();

// Throws std::runtime_error where one of these subnets is none.
void check_subnets(const std::string& text);

// Those with an address in one of `subnets` ("10.0.0.0/16", or several with commas), in the order
// of these; one address of each, and of each subnet only the best kind that it has. Throws
// std::runtime_error where a subnet is none, or where no interface is in any, which lists `all`.
std::vector<Interface> interfaces_in(const std::string& subnets, const std::vector<Interface>& all);

// The one that a rank takes: rails. One near to it, the ranks of a host by turns (nearest_card.h).
const Interface& own_rail(const std::vector<Interface>& rails, std::optional<int> own_node,
                          int local_rank);

// What says that a host whose messages go by TCP at `address` has cards for InfiniBand or RoCE at
// others, and how they are taken; nothing where it has none. `root` stands before all names of
// files, for tests.
std::string unused_cards(const std::string& address, const std::vector<Interface>& all,
                         const std::string& root = "");

}  // namespace smp::bootstrap
