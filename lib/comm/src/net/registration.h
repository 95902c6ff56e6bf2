#pragma once

#include <cstddef>
#include <string>

namespace smp::net {

// The error text for a provider of libfabric that refuses, with the reason `why`, to register
// `bytes` of memory. It names the bytes and how many this process may lock, which networks with
// registered memory need.
std::string registration_refused(const std::string& provider, size_t bytes, const std::string& why);

}  // namespace smp::net
