#pragma once

#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "smp/comm/jobs/shared_memory.h"

// Ranks as real processes. Only for tests that have no other thread when they fork.
namespace smp::testing {

struct Outcome {
  std::string said;    // what the program returned, or "<kind> <culprit>: <text>" of its CommError
  int status = 0;      // as of waitpid
  double seconds = 0;  // from the start to the end of what it said
};

struct ProcessOptions {
  std::string job_id;  // one that no other test uses, by default
  std::string job_key = "the key of the tests";
  std::chrono::milliseconds timeout{60000};
};

using RankProgram = std::function<std::string(comm::Communicator&)>;

std::vector<Outcome> run_processes(int size, const RankProgram& program,
                                   const ProcessOptions& options = {});

std::string fresh_job_id();
jobs::SharedMemoryOptions options_of(int rank, int size, const std::string& job_id);
int64_t resident_bytes();  // of this process
std::string text_of(const comm::CommError& error);

// Memory of zeros that this process shares with those that it forks.
template <typename T>
class Shared {
 public:
  Shared()
      : value_(new (mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                         0)) T()) {}
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* const value_;
};

// A child process that runs `body`; what body returns comes back.
class Child {
 public:
  explicit Child(const std::function<std::string()>& body);
  int pid() const { return pid_; }
  Outcome join();

 private:
  int pid_;
  int pipe_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace smp::testing
