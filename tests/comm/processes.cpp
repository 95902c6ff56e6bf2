#include "comm/processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <stdexcept>

#include "comm/times.h"

namespace smp::testing {

std::string text_of(const comm::CommError& error) {
  const char* kinds[] = {"peer_lost", "timeout", "mismatch", "aborted"};
  return std::string(kinds[int(error.kind)]) + " " + std::to_string(error.culprit) + ": " +
         error.what();
}

jobs::SharedMemoryOptions options_of(int rank, int size, const std::string& job_id) {
  jobs::SharedMemoryOptions options;
  options.rank = rank;
  options.size = size;
  options.job_id = job_id;
  options.job_key = "the key of the tests";
  options.timeout = kNever;
  return options;
}

int64_t resident_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm").ignore(32, ' ') >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

std::string fresh_job_id() {
  static int count = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

Child::Child(const std::function<std::string()>& body) : start_(std::chrono::steady_clock::now()) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  pipe_ = ends[0];
  if (pid_ == 0) {
    close(ends[0]);
    std::string said;
    try {
      said = body();
    } catch (const comm::CommError& e) {
      said = text_of(e);
    } catch (const std::exception& e) {
      said = std::string("exception: ") + e.what();
    }
    const ssize_t written = write(ends[1], said.data(), said.size());
    _exit(written == ssize_t(said.size()) ? 0 : 9);
  }
  close(ends[1]);
}

Outcome Child::join() {
  Outcome outcome;
  char buffer[4096];
  for (ssize_t n; (n = read(pipe_, buffer, sizeof(buffer))) > 0;)
    outcome.said.append(buffer, size_t(n));
  outcome.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  close(pipe_);
  waitpid(pid_, &outcome.status, 0);
  return outcome;
}

std::vector<Outcome> run_processes(int size, const RankProgram& program,
                                   const ProcessOptions& options) {
  jobs::SharedMemoryOptions shared;
  shared.size = size;
  shared.job_id = options.job_id.empty() ? fresh_job_id() : options.job_id;
  shared.job_key = options.job_key;
  shared.timeout = options.timeout;
  std::vector<Child> children;
  for (int rank = 0; rank < size; ++rank)
    children.emplace_back([&, rank] {
      jobs::SharedMemoryOptions own = shared;
      own.rank = rank;
      const auto world = jobs::connect_shared_memory(own);
      return program(*world);
    });
  std::vector<Outcome> outcomes;
  for (Child& child : children) outcomes.push_back(child.join());
  return outcomes;
}

}  // namespace smp::testing
