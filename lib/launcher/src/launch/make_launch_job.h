#pragma once

#include "reach_hosts.h"
#include "smp/launcher/job/job.h"
#include "smp/launcher/request/prepared_job.h"

namespace smp::run {
class RunFolder;
}

namespace smp::launch {

// One start of the ranks; a job with restarts has several.
struct StartAttempt {
  int restarts = 0;    // before it
  std::string resume;  // "latest" or a step; empty: start anew
  std::string from;    // the name of that checkpoint, of a restart
  std::optional<std::chrono::milliseconds> timeout;
};

// The part of this process's environment that the ranks inherit: all of it on this host, the
// forwarded variables on other ones.
// Throws ConfigError for a variable to pass on that is not set.
std::vector<std::string> inherited_environment(const request::PreparedJob& prepared);

// The width of standard output; 0 if it is no terminal.
int console_columns();

// The job for the supervisor, after the hosts were reached: each rank's command, environment and
// files. `folder` is null where there is none. Throws ConfigError.
job::LaunchJob make_launch_job(const request::PreparedJob& prepared, const run::RunFolder* folder,
                               const ReachedHosts& reached, const StartAttempt& attempt);

}  // namespace smp::launch
