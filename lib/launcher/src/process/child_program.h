#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <cstddef>

namespace smp::process {

// What a child reads in the memory of its parent, which it shares until it executes its program:
// all of it stays as it is until then. Lists end with a null pointer.
struct ChildProgram {
  char* const* paths = nullptr;  // where the program may be, in this order
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  char** shell_arguments =
      nullptr;  // for a text without #!: a shell, room for its path, the others
  int in = -1, out = -1, err = -1;
  pid_t parent = 0;
  sigset_t signal_mask;
  rlimit open_files;
  const cpu_set_t* cpus = nullptr;  // that it may run on; nullptr: those of the parent
  int error = 0;                    // the child's errno, where its program cannot be executed
};

// The child's own part: makes it a leader of a session that dies with the parent, and executes the
// program. Ends the child if that fails. It has its parent's memory, thread and errno, so it calls
// nothing but the kernel, and is compiled without sanitizers.
int become_program(void* program);

// clone(2) and clone3(2) of a child that has a stack of its own and runs become_program(program).
// The library's clone() is not the kernel's where there are sanitizers, and clone3 has none.
// Returns the pid, or a negative errno.
long clone_to_become(unsigned long flags, void* stack_end, void* child_tid, ChildProgram* program);
long clone3_to_become(void* clone_args, size_t size, ChildProgram* program);

}  // namespace smp::process
