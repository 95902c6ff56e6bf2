#pragma once

#include "smp/launcher/request/prepared_job.h"

namespace smp::environment {
class ReservedPort;
}
namespace smp::run {
class RunFolder;
}

namespace smp::launch {

// The second process of run_with_watchdog(): starts the ranks, stays with them, starts them again
// where that was asked for, and tells the end. Returns the exit code.
int run_job(const request::PreparedJob& prepared, const run::RunFolder* folder,
            const environment::ReservedPort& port, int control_fd);

}  // namespace smp::launch
