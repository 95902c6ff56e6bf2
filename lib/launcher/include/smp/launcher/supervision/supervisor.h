#pragma once

#include "smp/launcher/job/job.h"

namespace smp::job {
class JobObserver;
}
namespace smp::output {
class Console;
}

namespace smp::supervision {

// Starts the ranks of a job on a host and stays until none is left. The first failure ends the
// others by SIGTERM (and SIGCONT for those that are stopped), and after `grace` by SIGKILL. Then
// the processes that they had started are killed. `control_fd` carries one byte for each signal
// that reaches the launcher:
//   INT TERM HUP QUIT   passed on to the ranks, then as after a failure; a second one kills at once
//   others              passed on
// and its end of file means that the launcher itself has died: everything is killed at once. -1:
// none. `observer` may be null. One thread.
job::JobResult supervise(const job::LaunchJob& job, job::Host& host, output::Console& console,
                         int control_fd, job::JobObserver* observer = nullptr);

}  // namespace smp::supervision
