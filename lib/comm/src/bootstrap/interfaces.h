#pragma once

#include <optional>
#include <string>
#include <vector>

namespace smp::bootstrap {

// A network interface of this host with an IP address.
struct Interface {
  // A bridge joins containers of this host; a network card (NIC) leads out of it; others may.
  enum class Kind { kBridge, kOther, kNic };
  std::string name, address;  // "eth0", "10.0.1.7"
  std::optional<int> node;    // NUMA node of its card, if known
  Kind kind = Kind::kNic;
};

// All interfaces that are up, in the kernel's order. Throws std::system_error.
std::vector<Interface> own_interfaces();

// Throws std::runtime_error if one of the subnets is not valid.
void check_subnets(const std::string& text);

// The interfaces with an address in one of `subnets` ("10.0.0.0/16", or several with commas), in
// the order of `subnets`: one address of each interface, and of each subnet only the best kind.
// Throws std::runtime_error if a subnet is not valid, or, with a list of `all`, if no interface is
// in any.
std::vector<Interface> interfaces_in(const std::string& subnets, const std::vector<Interface>& all);

// The rail of a rank: the interface that it uses. It is one near the rank; the ranks of a host take
// turns (nearest_nic.h).
const Interface& own_rail(const std::vector<Interface>& rails, std::optional<int> own_node,
                          int local_rank);

// A hint for a host whose messages go by TCP at `address` although it has cards for InfiniBand or
// RoCE at other addresses: which ones, and how to use them. "" if it has none. Tests put `root`
// before all file names.
std::string unused_nics(const std::string& address, const std::vector<Interface>& all,
                        const std::string& root = "");

}  // namespace smp::bootstrap
