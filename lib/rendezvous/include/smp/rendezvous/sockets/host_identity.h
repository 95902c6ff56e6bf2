#pragma once

#include <string>

namespace smp::sockets {

// Returns a text that is equal for processes that can share memory: they have one kernel and one
// network namespace. Throws std::runtime_error without /proc.
std::string own_host_identity();

}  // namespace smp::sockets
