#pragma once

#include "launch.h"
#include "reach_hosts.h"
#include "smp/launcher/job.h"

namespace smp {

class RunFolder;

// What a supervisor is to run, now that the hosts are reached: each rank's command, environment and
// files. `folder` is null where there is none. Throws ConfigError.
Job job_of(const PreparedJob& prepared, const RunFolder* folder, const ReachedHosts& reached);

}  // namespace smp
