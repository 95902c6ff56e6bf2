#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <map>
#include <optional>

#include "smp/launcher/file_descriptor.h"

namespace smp {

// Where children that could not become their program say why. They inherit the end that is written,
// and executing a program closes it.
class ExecFailures {
 public:
  ExecFailures();
  bool is_open() const { return write_end_.is_open(); }  // false: errno says why
  int write_end() const { return write_end_.number(); }
  // errno of the child, which has ended: none if its program was executed.
  std::optional<int> take(pid_t child);
  // Waits until the only child that was ever given the write end has executed its program, or not.
  std::optional<int> wait(pid_t child);

 private:
  void read_some();
  FileDescriptor read_end_, write_end_;
  std::map<pid_t, int> errors_;
};

// What the child needs between fork and exec, where it may neither allocate nor throw.
struct ChildSetup {
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  int in = -1, out = -1, err = -1;
  sigset_t signal_mask;
  rlimit open_files;
  const cpu_set_t* cpus = nullptr;  // that it may run on; nullptr: those of this process
};

// Starts a process in a session of its own that dies with the calling thread, and does not wait
// until its program is executed: until then it may still be in the session of this process. Returns
// its pid, or -1 with errno set. A program that cannot be executed is told to `failures` before the
// child ends.
//
// Not vfork, which is cheaper but waits for the child: where all CPUs are busy, as long as it takes
// the child to get one, and for one child after the other.
pid_t begin_spawn(const ChildSetup& setup, const ExecFailures& failures);

// The same, but waits, and returns -1 with errno set also when the program cannot be executed, and
// where no descriptors are left to hear of that.
pid_t spawn(const ChildSetup& setup);

// To the process that begin_spawn() made, which nobody has waited for yet, and to its group.
void signal_group(pid_t pid, int signal);

}  // namespace smp
