#pragma once

#include "smp/launcher/request/prepared_job.h"

namespace smp::launch {

// Becomes the smp-worker that builds one rank of the plan alone and prints its memory; returns only
// by exception. Throws ConfigError when there is no such rank or no worker.
[[noreturn]] void build_only(const request::PreparedJob& job);

}  // namespace smp::launch
