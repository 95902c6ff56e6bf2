#pragma once

#include "smp/launcher/launch/check.h"
#include "smp/launcher/request/prepared_job.h"

namespace smp::launch {

// Starts the job and stays until it has ended. `checks` are asked about a plan's job before
// anything is started. Returns the exit code. Throws ConfigError for what is wrong with the plan or
// the run folder.
int launch(request::PreparedJob job, const PlanChecks& checks);

// The part of a host that is not the first, in a start by hand on each: it becomes an agent of the
// first. Returns the exit code. Throws ConfigError, std::runtime_error.
int join_job(const request::LaunchRequest& request);

}  // namespace smp::launch
