#pragma once

#include <string>
#include <vector>

namespace smp::reach {

// "eth0=10.0.0.1" for each address of this host that others can reach: interfaces that are up,
// without the loopback ones, IPv4 before IPv6, no link-local ones.
std::vector<std::string> own_addresses();

// "127.0.0.1", "::1": of a host alone.
bool is_loopback(const std::string& address);

// The address under which the ssh client reached this host; empty without ssh.
std::string address_reached_by_ssh();

}  // namespace smp::reach
