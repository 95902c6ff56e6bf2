#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

namespace smp {

// What the child needs between vfork and exec, where it may neither allocate nor throw.
struct ChildSetup {
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  int in = -1, out = -1, err = -1;
  sigset_t signal_mask;
  rlimit open_files;
  const cpu_set_t* cpus = nullptr;  // that it may run on; nullptr: those of this process
};

// Starts a process in a session of its own that dies with the calling thread. Returns its pid, or
// -1 with errno set when the process or the program could not be started.
pid_t spawn(const ChildSetup& setup);

}  // namespace smp
