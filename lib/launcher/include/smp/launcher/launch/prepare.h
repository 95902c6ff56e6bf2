#pragma once

#include "smp/launcher/request/prepared_job.h"

namespace smp::launch {

// The job of a request: reads the plan, if there is one, names the hosts and counts the ranks.
// Starts and writes nothing. Throws ConfigError.
request::PreparedJob prepare(const request::LaunchRequest& request);

}  // namespace smp::launch
