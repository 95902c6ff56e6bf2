#include "forked_ranks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <vector>

#include "smp/plan/random_hex.h"

namespace smp {

int run_forked_ranks(int size, const std::function<int(const JobEnvironment&)>& program) {
  JobEnvironment job;
  job.size = job.local_size = size;
  job.job_id = random_hex(8);
  job.job_key = random_hex(32);
  read_settings(job);
  const pid_t parent = getpid();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child < 0) {
      for (const pid_t started : ranks) kill(started, SIGKILL);
      throw std::runtime_error(fmt::format("rank {} could not be started", rank));
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
  int first_failure = 0;
  for (int status; wait(&status) > 0;) {
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (first_failure == 0) first_failure = code;
  }
  return first_failure;
}

}  // namespace smp
