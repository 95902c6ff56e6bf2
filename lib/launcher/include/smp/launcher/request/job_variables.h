#pragma once

#include <chrono>
#include <string>

#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/request/prepared_job.h"

namespace smp::run {
class RunFolder;
}

namespace smp::request {

// What the ranks of a job share, as far as it is known before its start: numbers of ranks and
// hosts, the checkpoint to resume from, restarts and the run's folder. `folder` is null where there
// is none. Port, address, key and plan are left to the caller.
environment::JobVariables job_variables(const PreparedJob& job, const run::RunFolder* folder);

// "SMP_COMM_TIMEOUT_S=30"
std::string comm_timeout_variable(std::chrono::milliseconds time);

}  // namespace smp::request
