#pragma once

#include <string>

namespace smp::bootstrap {

// Returns a text that is equal for processes that can share memory: they have one kernel and one
// network namespace. Throws std::runtime_error without /proc.
std::string own_host_identity();

// Returns the numeric address from which this host reaches `address`. Sends nothing. Throws
// std::runtime_error that names `address`.
std::string local_address_towards(const std::string& address, int port);

}  // namespace smp::bootstrap
