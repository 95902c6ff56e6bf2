#pragma once

#include <string>

namespace smp {

// Equal for processes that can share memory: one kernel and one network namespace. Throws
// std::runtime_error without /proc.
std::string own_host_identity();

// The numeric address from which this host reaches `address`; nothing is sent. Throws
// std::runtime_error that names `address`.
std::string local_address_towards(const std::string& address, int port);

}  // namespace smp
