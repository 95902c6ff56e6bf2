#pragma once

#include "smp/launcher/request/prepared_job.h"

namespace smp::environment {
class ReservedPort;
}
namespace smp::run {
class RunFolder;
}

namespace smp::launch {

// Runs in the second process of run_with_watchdog(). Starts the ranks, supervises them, starts them
// again if --max-restarts allows it, and reports the end. Returns the exit code.
int run_job(const request::PreparedJob& prepared, const run::RunFolder* folder,
            const environment::ReservedPort& port, int control_fd);

}  // namespace smp::launch
