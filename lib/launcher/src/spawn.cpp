#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
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

struct Failure {
  pid_t child = 0;
  int error = 0;
};

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

ExecFailures::ExecFailures() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  read_end_ = FileDescriptor(ends[0]);
  write_end_ = FileDescriptor(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
}

void ExecFailures::read_some() {
  Failure failure;
  while (read(read_end_.number(), &failure, sizeof failure) == sizeof failure)
    errors_[failure.child] = failure.error;
}

std::optional<int> ExecFailures::take(pid_t child) {
  read_some();
  const auto found = errors_.find(child);
  if (found == errors_.end()) return std::nullopt;
  const int error = found->second;
  errors_.erase(found);
  return error;
}

std::optional<int> ExecFailures::wait(pid_t child) {
  write_end_.reset();
  fcntl(read_end_.number(), F_SETFL, 0);
  read_some();
  return take(child);
}

pid_t begin_spawn(const ChildSetup& setup, const ExecFailures& failures) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become(setup, parent);
    const Failure failure{getpid(), errno};
    (void)!write(failures.write_end(), &failure, sizeof failure);
    _exit(kExecFailed);
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

pid_t spawn(const ChildSetup& setup) {
  ExecFailures failures;
  if (!failures.is_open()) return -1;
  const pid_t pid = begin_spawn(setup, failures);
  if (pid < 0) return -1;
  const std::optional<int> error = failures.wait(pid);
  if (!error) return pid;
  waitpid(pid, nullptr, 0);
  errno = *error;
  return -1;
}

// Before its first step the child leads no group, so there is nobody else to tell either.
void signal_group(pid_t pid, int signal) {
  if (kill(-pid, signal) != 0 && errno == ESRCH) kill(pid, signal);
}

}  // namespace smp
