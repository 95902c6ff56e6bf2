#pragma once

#include <cstddef>
#include <string>

namespace smp::net {

// What is said when a provider of libfabric refuses, with these words, to register so many bytes:
// how many, and how many this process may lock, which networks of their own memory ask of it.
std::string registration_refused(const std::string& provider, size_t bytes, const std::string& why);

}  // namespace smp::net
