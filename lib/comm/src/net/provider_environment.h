#pragma once

#include <string>

namespace smp::net {

// Sets the environment variables that configure libfabric's providers. Variables that the user has
// set stay. Call it before libfabric is loaded, and before other threads read the environment.
// Tests put `root` before all file names.
void prepare_providers(const std::string& root = "");

}  // namespace smp::net
