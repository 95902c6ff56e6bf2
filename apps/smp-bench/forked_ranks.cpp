#include "forked_ranks.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "smp/plan/base/random_hex.h"

namespace smp {
namespace {

using Clock = std::chrono::steady_clock;

// Ranks that a failure reaches say so and end by themselves; there may be some that it never does.
constexpr std::chrono::seconds kAfterFailure{3};
constexpr timespec kLookEvery{0, 10'000'000};

// Of one that ends by itself, itself has said why.
void say_what_killed(size_t rank, int signal) {
  const char* name = sigabbrev_np(signal);
  fmt::print(stderr, "smp-bench: rank {} was killed by {}\n", rank,
             name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name));
}

// 0, or the exit code of the cause: the rank that a signal killed, else the first that failed. The
// peers of a killed rank may be found first, as they end at once. `ranks`: their processes, by
// rank.
int wait_for_all(std::vector<pid_t> ranks) {
  int first_failure = 0;
  bool is_cause_known = false;  // a signal killed it; those killed from here on are killed by us
  Clock::time_point kill_at{};
  const auto is_left = [](pid_t process) { return process > 0; };
  while (std::any_of(ranks.begin(), ranks.end(), is_left)) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, first_failure == 0 ? 0 : WNOHANG);
    if (ended < 0 && errno != EINTR) break;
    const auto found = std::find(ranks.begin(), ranks.end(), ended);
    if (ended > 0 && found != ranks.end()) {
      *found = 0;
      const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      const int code = signal != 0 ? 128 + signal : WEXITSTATUS(status);
      if (code == 0) continue;
      if (first_failure == 0) kill_at = Clock::now() + kAfterFailure;
      if (first_failure == 0 || (signal != 0 && !is_cause_known)) first_failure = code;
      if (signal != 0 && !is_cause_known) {
        say_what_killed(size_t(found - ranks.begin()), signal);
        is_cause_known = true;
      }
    }
    if (ended != 0) continue;
    nanosleep(&kLookEvery, nullptr);
    if (Clock::now() < kill_at) continue;
    is_cause_known = true;
    for (const pid_t process : ranks)
      if (is_left(process)) kill(process, SIGKILL);
  }
  return first_failure;
}

}  // namespace

int run_forked_ranks(int size, const std::function<int(const jobs::JobEnvironment&)>& program) {
  jobs::JobEnvironment job;
  job.size = job.local_size = size;
  job.job_id = random_hex(8);
  job.job_key = random_hex(32);
  jobs::read_settings(job);
  const pid_t parent = getpid();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child < 0) {
      const int error = errno;
      for (const pid_t started : ranks) kill(started, SIGKILL);
      throw std::runtime_error(
          fmt::format("rank {} could not be started: {}", rank, strerror(error)));
    }
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      job.rank = rank;
      const int code = program(job);
      const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
      if (lost) std::fputs("smp-bench: standard output could not be written in full\n", stderr);
      _exit(code == 0 && lost ? 1 : code);
    }
    ranks.push_back(child);
  }
  return wait_for_all(ranks);
}

}  // namespace smp
