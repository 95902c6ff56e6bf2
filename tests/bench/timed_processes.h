#pragma once

#include <errno.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sample_calls.h"

// Processes of this host that time calls together, as smp-bench does: the slowest one's time of a
// batch of calls between barriers, the median of the samples.
namespace smp::bench {

inline constexpr int kMostProcesses = 64;

// Vectors of these begin at a line of the cache, as PyTorch's tensors do.
struct alignas(64) Line {
  std::byte bytes[64];
};

// Zeros, and what processes that are forked later see too.
inline void* shared_memory(size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  return memory;
}

class TimedProcesses {
 public:
  // `program` runs in each of `size` new processes, which end with this one; false when one failed,
  // which ends the others.
  static bool run(int size, bool is_dirty,
                  const std::function<void(TimedProcesses& all, int rank)>& program) {
    TimedProcesses all(size, is_dirty);
    std::vector<pid_t> children;
    const pid_t parent = getpid();
    bool is_good = true;
    for (int rank = 0; rank < size && is_good; ++rank) {
      const pid_t child = fork();
      if (child < 0) {
        fmt::print(stderr, "rank {} cannot be started: {}\n", rank, strerror(errno));
        is_good = false;
      }
      if (child > 0) children.push_back(child);
      if (child != 0) continue;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      all.rank_ = rank;
      int code = 0;
      try {
        let_settle([&all](double mine) { return all.slowest(mine); });
        program(all, rank);
      } catch (const std::exception& error) {
        fmt::print(stderr, "rank {}: {}\n", rank, error.what());
        code = 1;
      }
      _exit(code);
    }
    // They would wait for one that has failed, or was never there, in the next barrier for ever.
    auto end_all = [&] {
      for (const pid_t child : children) kill(child, SIGKILL);
    };
    if (!is_good) end_all();
    int status = 0;
    for (pid_t ended; (ended = wait(&status)) > 0;) {
      std::erase(children, ended);
      if (status == 0 || !std::exchange(is_good, false)) continue;
      end_all();
    }
    return is_good;
  }

  void barrier() {
    const int epoch = shared_->epoch.load(std::memory_order_acquire);
    if (shared_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      shared_->arrived.store(0, std::memory_order_relaxed);
      shared_->epoch.store(epoch + 1, std::memory_order_release);
    }
    while (shared_->epoch.load(std::memory_order_acquire) == epoch) sched_yield();
  }

  // Seconds of one call. Dirty: `rewrite` comes before every call, and is not counted.
  double median_of(const std::function<void()>& call, const std::function<void()>& rewrite) {
    constexpr int kSamples = 7;
    rewrite();
    call();
    return median_of_samples(  // as smp-bench
        kSamples, 0.02, is_dirty_ ? 10'000 : 100'000,
        [&](int n) { return seconds_of(n, call, rewrite); });
  }

 private:
  struct Shared {
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<int> epoch{0};
    double seconds[kMostProcesses];
  };

  TimedProcesses(int size, bool is_dirty)
      : size_(size), is_dirty_(is_dirty), shared_(new (shared_memory(sizeof(Shared))) Shared) {}

  static double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  double slowest(double mine) {
    shared_->seconds[rank_] = mine;
    barrier();
    const double result = *std::max_element(shared_->seconds, shared_->seconds + size_);
    barrier();
    return result;
  }

  double seconds_of(int calls, const std::function<void()>& call,
                    const std::function<void()>& rewrite) {
    double sum = 0;
    for (int i = 0; i < (is_dirty_ ? calls : 1); ++i) {
      if (is_dirty_) rewrite();
      barrier();
      const double start = now_s();
      for (int j = 0; j < (is_dirty_ ? 1 : calls); ++j) call();
      sum += slowest(now_s() - start);
    }
    return sum;
  }

  const int size_;
  const bool is_dirty_;
  Shared* const shared_;
  int rank_ = 0;
};

// To the CPU of that place among those that this process may use, if there is one.
inline void pin_to(int rank) {
  cpu_set_t allowed, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && seen++ == rank) CPU_SET(cpu, &own);
  if (CPU_COUNT(&own) == 1) sched_setaffinity(0, sizeof(own), &own);
}

// What the programs of this folder are called with: OUT [--dirty] BYTES ..., behind `first`.
struct TimedArguments {
  std::string out;
  bool is_dirty = false;
  std::vector<int64_t> sizes;

  TimedArguments(int argc, char** argv, int first) {
    if (argc > first) out = argv[first];
    for (int i = first + 1; i < argc; ++i)
      if (std::string(argv[i]) == "--dirty")
        is_dirty = true;
      else
        sizes.push_back(std::atoll(argv[i]));
    if (sizes.empty() || *std::min_element(sizes.begin(), sizes.end()) < 1)
      throw std::invalid_argument("arguments: OUT [--dirty] BYTES ...");
  }
};

inline void write_text(const std::string& path, const std::string& text) {
  FILE* const file = fopen(path.c_str(), "w");
  const bool is_written = file != nullptr && fputs(text.c_str(), file) >= 0;
  if (file == nullptr || fclose(file) != 0 || !is_written)
    throw std::runtime_error(fmt::format("{} could not be written", path));
}

// What main() returns: `run` of its arguments, or 2 with what it has thrown.
inline int run_program(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 2;
  }
}

}  // namespace smp::bench
