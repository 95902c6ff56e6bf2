#pragma once

#include <functional>

#include "smp/comm/jobs/job_environment.h"

namespace smp {

// Runs `program` in `size` processes of this host, each with what it needs to find the others, and
// waits for them: 0, or the exit code of the first that failed (128 + signal). The others then have
// 3 s to end; a rank that was killed is named on standard error. To be called before this process
// has threads.
int run_forked_ranks(int size, const std::function<int(const jobs::JobEnvironment&)>& program);

}  // namespace smp
