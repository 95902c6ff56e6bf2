#pragma once

#include "launch.h"

namespace smp {

// Becomes the smp-worker that builds one rank of the plan alone and prints its memory; returns only
// by exception. Throws ConfigError when there is no such rank or no worker.
[[noreturn]] void build_only(const PreparedJob& job);

}  // namespace smp
