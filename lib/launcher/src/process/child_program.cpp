#include "process/child_program.h"

#include <errno.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace smp::process {
namespace {

constexpr int kExecFailed = 127;
constexpr long kSignalSetBytes = 8;  // the kernel's size; the C library's is larger
// The launcher ignores these signals, and exec would pass that on to the program.
constexpr int kIgnoredByLauncher[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2,
                                      SIGCONT, SIGPIPE, SIGTTOU, SIGTTIN, SIGTSTP, SIGXFSZ};

long word(const void* address) { return reinterpret_cast<long>(address); }
long word(long number) { return number; }

// A system call. The C library's syscall() would change the parent's errno. A negative result is an
// error.
template <typename... Words>
long ask_kernel(long number, Words... words) {
  const long all[5] = {word(words)...};
#if defined(__x86_64__)
  long result = number;
  register long fourth asm("r10") = all[3];
  register long fifth asm("r8") = all[4];
  asm volatile("syscall"
               : "+a"(result)
               : "D"(all[0]), "S"(all[1]), "d"(all[2]), "r"(fourth), "r"(fifth)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long which asm("x8") = number;
  register long first asm("x0") = all[0];
  register long second asm("x1") = all[1];
  register long third asm("x2") = all[2];
  register long fourth asm("x3") = all[3];
  register long fifth asm("x4") = all[4];
  asm volatile("svc 0"
               : "+r"(first)
               : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
               : "memory");
  return first;
#else
#  error "how does this processor call the kernel?"
#endif
}

int execute(const ChildProgram& program, char* path) {
  int error =
      -static_cast<int>(ask_kernel(SYS_execve, path, program.arguments, program.environment));
  if (error != ENOEXEC) return error;
  program.shell_arguments[1] = path;
  return -static_cast<int>(ask_kernel(SYS_execve, program.shell_arguments[0],
                                      program.shell_arguments, program.environment));
}

// Executes the program as execvpe() does. Returns the errno of a failure.
int execute_where_it_is(const ChildProgram& program) {
  int error = ENOENT;
  bool was_forbidden = false;
  for (char* const* path = program.paths; *path != nullptr; ++path) {
    error = execute(program, *path);
    if (error == EACCES) was_forbidden = true;
    const bool is_elsewhere = error == EACCES || error == ENOENT || error == ENOTDIR ||
                              error == ESTALE || error == ENODEV || error == ETIMEDOUT;
    if (!is_elsewhere) return error;
  }
  return was_forbidden ? EACCES : error;
}

int try_to_become(const ChildProgram& program) {
  ask_kernel(SYS_setsid);
  ask_kernel(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  if (ask_kernel(SYS_getppid) != program.parent) return ECHILD;  // the parent died before the prctl
  ask_kernel(SYS_dup3, program.in, STDIN_FILENO, 0);
  ask_kernel(SYS_dup3, program.out, STDOUT_FILENO, 0);
  ask_kernel(SYS_dup3, program.err, STDERR_FILENO, 0);
  ask_kernel(SYS_close_range, STDERR_FILENO + 1, long{~0u}, long{CLOSE_RANGE_CLOEXEC});
  ask_kernel(SYS_prlimit64, 0, RLIMIT_NOFILE, &program.open_files, nullptr);
  const long by_default[4] = {};  // the kernel's struct sigaction
  for (const int number : kIgnoredByLauncher)
    ask_kernel(SYS_rt_sigaction, number, by_default, nullptr, kSignalSetBytes);
  ask_kernel(SYS_rt_sigprocmask, SIG_SETMASK, &program.signal_mask, nullptr, kSignalSetBytes);
  // Before exec, so that the memory of the program is allocated near its CPUs.
  if (program.cpus != nullptr) {
    const long result = ask_kernel(SYS_sched_setaffinity, 0, sizeof *program.cpus, program.cpus);
    if (result < 0) return -static_cast<int>(result);
  }
  return execute_where_it_is(program);
}

}  // namespace

int become_program(void* program) {
  auto& own = *static_cast<ChildProgram*>(program);
  own.error = try_to_become(own);
  while (true) ask_kernel(SYS_exit_group, kExecFailed);
}

// A system call that makes a child with its own stack; the child calls become_program().
long make_child(long number, const long (&words)[5], ChildProgram* program) {
#if defined(__x86_64__)
  long result = number;
  register long fourth asm("r10") = words[3];
  register long fifth asm("r8") = words[4];
  register auto begin asm("r9") = become_program;
  register auto argument asm("r12") = program;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %%r12, %%rdi\n\t"
      "call *%%r9\n"
      "1:"
      : "+a"(result)
      : "D"(words[0]), "S"(words[1]), "d"(words[2]), "r"(fourth), "r"(fifth), "r"(begin),
        "r"(argument)
      : "rcx", "r11", "memory", "cc");
  return result;
#elif defined(__aarch64__)
  register long which asm("x8") = number;
  register long first asm("x0") = words[0];
  register long second asm("x1") = words[1];
  register long third asm("x2") = words[2];
  register long fourth asm("x3") = words[3];
  register long fifth asm("x4") = words[4];
  register auto begin asm("x5") = become_program;
  register auto argument asm("x6") = program;
  asm volatile(
      "svc 0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "mov x0, x6\n\t"
      "blr x5\n"
      "1:"
      : "+r"(first)
      : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(begin), "r"(argument)
      : "memory", "cc");
  return first;
#endif
}

long clone_to_become(unsigned long flags, void* stack_end, void* child_tid, ChildProgram* program) {
  const long begin = static_cast<long>(flags), stack = word(stack_end), tid = word(child_tid);
#if defined(__x86_64__)
  return make_child(SYS_clone, {begin, stack, 0, tid, 0}, program);
#else  // the last two arguments are swapped
  return make_child(SYS_clone, {begin, stack, 0, 0, tid}, program);
#endif
}

long clone3_to_become(void* clone_args, size_t size, ChildProgram* program) {
  return make_child(SYS_clone3, {word(clone_args), static_cast<long>(size), 0, 0, 0}, program);
}

}  // namespace smp::process
