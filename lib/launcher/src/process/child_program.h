#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <cstddef>

namespace smp::process {

// Input of a child that shares its parent's memory until it executes its program. The parent must
// not change the input before that. Lists end with a null pointer.
struct ChildProgram {
  char* const* paths = nullptr;  // candidates for the program, tried in this order
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  // For a script without #!: the shell, an empty entry for the script's path, the arguments.
  char** shell_arguments = nullptr;
  int in = -1, out = -1, err = -1;
  pid_t parent = 0;
  sigset_t signal_mask;
  rlimit open_files;
  const cpu_set_t* cpus = nullptr;  // CPUs of the child; nullptr: the parent's
  int error = 0;                    // the child's errno if its program cannot be executed
};

// Runs in the child: makes the child a session leader that dies with the parent, and executes the
// program. Ends the child if that fails. The child shares the parent's memory, thread and errno, so
// this function makes system calls only and is compiled without sanitizers.
int become_program(void* program);

// clone(2) and clone3(2) of a child that has its own stack and runs become_program(program).
// Sanitizers replace the C library's clone(), and the library has no clone3().
// Returns the pid, or a negative errno.
long clone_to_become(unsigned long flags, void* stack_end, void* child_tid, ChildProgram* program);
long clone3_to_become(void* clone_args, size_t size, ChildProgram* program);

}  // namespace smp::process
