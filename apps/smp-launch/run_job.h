#pragma once

#include <string>

#include "launch.h"

namespace smp {

class ReservedPort;
class RunFolder;

// The second process of run_guarded(): starts the ranks, stays with them, starts them again where
// that was asked for, and tells the end. Returns the exit code.
int run_job(const PreparedJob& prepared, const RunFolder* folder, const ReservedPort& port,
            int control_fd);

}  // namespace smp
