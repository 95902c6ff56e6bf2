#include "spawn.h"

#include <errno.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace smp {
namespace {

constexpr int kExecFailed = 127;
// The launcher ignores these; exec would hand that down.
constexpr int kIgnoredByLauncher[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2,
                                      SIGPIPE, SIGTTOU, SIGTTIN, SIGTSTP, SIGXFSZ};

// Runs in the child. Returns only if the program cannot be executed.
void become(const ChildSetup& setup, pid_t parent) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExecFailed);  // the launcher died before the line above
  dup2(setup.in, STDIN_FILENO);
  dup2(setup.out, STDOUT_FILENO);
  dup2(setup.err, STDERR_FILENO);
  syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
  setrlimit(RLIMIT_NOFILE, &setup.open_files);
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  for (int number : kIgnoredByLauncher) sigaction(number, &by_default, nullptr);
  sigprocmask(SIG_SETMASK, &setup.signal_mask, nullptr);
  // Before exec, so that all memory of the program lies next to its CPUs.
  if (setup.cpus != nullptr && sched_setaffinity(0, sizeof *setup.cpus, setup.cpus) != 0) return;
  execvpe(setup.arguments[0], setup.arguments, setup.environment);
}

}  // namespace

pid_t spawn(const ChildSetup& setup) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = getpid();
  // vfork: the child runs on our memory until it execs, so it is cheap and its errno is ours to
  // read.
  volatile int exec_error = 0;
  const pid_t pid = vfork();
  if (pid == 0) {
    become(setup, parent);
    exec_error = errno;
    _exit(kExecFailed);
  }
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    errno = fork_error;
    return -1;
  }
  if (exec_error != 0) {
    waitpid(pid, nullptr, 0);
    errno = exec_error;
    return -1;
  }
  return pid;
}

}  // namespace smp
