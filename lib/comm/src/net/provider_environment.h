#pragma once

#include <string>

namespace smp::net {

// Tells libfabric's providers, by the variables that they read, what they shall do and leave alone;
// what the user has set stays. Before libfabric is loaded, and before other threads read the
// environment. `root` stands before all names of files, for tests.
void prepare_providers(const std::string& root = "");

}  // namespace smp::net
