#include "smp/launcher/process/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <set>
#include <system_error>

#include "process/rank_cgroup.h"
#include "smp/launcher/process/descendants.h"
#include "smp/launcher/process/file_limit.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::process {
namespace {

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};
constexpr auto kPatience = std::chrono::milliseconds(10'000);
constexpr int kAfterHangUpMs = 300;
constexpr int kLookMs = 100;  // interval while the second process is stopped

// Signals that the parent made us ignore stay ignored (nohup; a background job of a script).
sigset_t passed_on_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int number : kPassedOn) {
    struct sigaction now = {};
    sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  return set;
}

[[noreturn]] void be_second(const std::function<int(int)>& supervise,
                            system::FileDescriptor control, sigset_t mask, bool reads_terminal) {
  prctl(PR_SET_NAME, "smp-supervise");
  if (!reads_terminal) setpgid(0, 0);
  // For a shared process group: Ctrl-Z, and reading from the terminal of another job.
  signal(SIGTSTP, SIG_IGN);
  signal(SIGTTIN, SIG_IGN);
  for (int number : kPassedOn) {
    signal(number, SIG_IGN);
    sigdelset(&mask, number);  // ranks must not inherit the first process's mask
  }
  signal(SIGTTOU, SIG_IGN);  // a background group may still write to the terminal
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  reserve_file_table();
  const int code = supervise(control.number());
  std::fflush(nullptr);
  _exit(code);
}

// The state of the second process, as the first one knows it.
struct Second {
  const pid_t pid;
  int status = 0;           // its wait status, once it has ended
  int limit_ms = 0;         // longest allowed stop; 0: not set by the second process
  bool is_stopped = false;  // for stopped_ms, without stops of the first process
  int stopped_ms = 0;

  bool has_ended() {
    while (waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == pid) {
      is_stopped = WIFSTOPPED(status);
      if (!is_stopped && !WIFCONTINUED(status)) return true;
      stopped_ms = 0;
    }
    return false;
  }
  bool is_looked_at() const { return is_stopped && limit_ms > 0; }
};

// Passes signals on until the second process has ended. Returns its wait status.
int pass_signals_on(Second second, int control, sigset_t signals, int watched) {
  sigaddset(&signals, SIGCHLD);
  const system::FileDescriptor arrived(signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!arrived) throw std::system_error(errno, std::generic_category(), "signalfd");
  bool hung_up = false, is_heard = true;
  while (!second.has_ended()) {
    pollfd ready[3] = {{arrived.number(), POLLIN, 0},
                       {hung_up ? -1 : watched, POLLRDHUP, 0},
                       {is_heard ? control : -1, POLLIN, 0}};
    const int patience = hung_up ? kAfterHangUpMs : second.is_looked_at() ? kLookMs : -1;
    if (poll(ready, 3, patience) == 0) {
      second.stopped_ms += patience;
      if (hung_up || second.stopped_ms >= second.limit_ms) kill(second.pid, SIGKILL);
    }
    if (ready[1].revents != 0) hung_up = true;
    if (ready[2].revents != 0)
      is_heard = read(control, &second.limit_ms, sizeof second.limit_ms) > 0;
    signalfd_siginfo info{};
    while (read(arrived.number(), &info, sizeof info) > 0) {
      const auto byte = static_cast<unsigned char>(info.ssi_signo);
      // If the buffer is full, enough signals are waiting.
      if (info.ssi_signo != SIGCHLD) (void)!write(control, &byte, 1);
    }
  }
  return second.status;
}

}  // namespace

std::optional<int> asked_to_end(int control_fd, const std::set<int>& also) {
  unsigned char number = 0;
  if (read(control_fd, &number, 1) != 1) return 0;
  const bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
  if (!ends && also.count(number) == 0) return std::nullopt;
  return number;
}

void may_be_stopped_for(std::chrono::milliseconds limit, int control_fd) {
  const int limit_ms = static_cast<int>(std::min<int64_t>(limit.count(), INT_MAX));
  (void)!write(control_fd, &limit_ms, sizeof limit_ms);  // the first process may have died
}

void hold_signals(const std::set<int>& numbers) {
  sigset_t held;
  sigemptyset(&held);
  for (const int number : numbers) sigaddset(&held, number);
  sigprocmask(SIG_BLOCK, &held, nullptr);
}

int run_with_watchdog(const std::function<int(int)>& supervise, int watched, bool reads_terminal,
                      const std::function<void()>& after_death) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot start the supervisor");
  system::FileDescriptor seconds_end(ends[0]), own_end(ends[1]);
  fcntl(own_end.number(), F_SETFL, O_NONBLOCK);

  // Children from before stay alive: a shell may exec smp-launch with children.
  const std::vector<pid_t> others = children_of_this_process();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t blocked = passed_on_signals(), mask;
  const sigset_t passed_on = blocked;
  sigaddset(&blocked, SIGCHLD);
  sigprocmask(SIG_BLOCK, &blocked, &mask);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // if ignored, the kernel would discard the ends of children
  std::fflush(nullptr);
  const pid_t second = fork();
  if (second < 0)
    throw std::system_error(errno, std::generic_category(), "cannot start the supervisor");
  if (second == 0) {
    own_end.reset();
    be_second(supervise, std::move(seconds_end), mask, reads_terminal);
  }
  seconds_end.reset();

  const int status = pass_signals_on({second}, own_end.number(), passed_on, watched);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const RankCgroup ranks = RankCgroup::of(second);
  const int in_group = ranks.kill();
  const Sweep sweep = end_descendants(std::set<pid_t>(others.begin(), others.end()), kPatience);
  std::fprintf(stderr,
               "smp-launch: its supervising process was killed by signal %d; all processes of the "
               "job were ended (%d by smp-launch)\n",
               WTERMSIG(status), std::max(sweep.ended, in_group));
  if (after_death) after_death();
  return static_cast<int>(ExitCode::kLauncherError);
}

}  // namespace smp::process
