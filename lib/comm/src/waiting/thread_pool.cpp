#include "waiting/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "smp/plan/system/signals_blocked.h"
#include "waiting/futex.h"
#include "waiting/pause_cpu.h"

namespace smp::waiting {
namespace {

using Clock = std::chrono::steady_clock;

// How long an idle helper looks for work before it sleeps: parts of a long message follow each
// other within this time.
constexpr std::chrono::microseconds kIdle{100};
constexpr std::chrono::seconds kNap{10};
constexpr int kSpins = 1000;
constexpr int kMost = 7;  // eight threads sum as fast as a link of PCIe 5 copies

}  // namespace

int default_pool_threads(int cpus, int ranks) {
  const int share = std::max(1, cpus / std::max(1, ranks));
  return std::clamp(share - 2, std::min(1, share - 1), kMost);
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  bell_.fetch_add(1);
  futex_wake_all(bell_);
  for (std::thread& thread : threads_) thread.join();
}

// Starts as many threads as the host grants: calls need none of them.
void ThreadPool::start() {
  try {
    while (int(threads_.size()) < count_)
      threads_.push_back(system::start_without_signals([this] { run_thread(); }));
  } catch (const std::system_error&) {
    count_ = int(threads_.size());
  }
}

void ThreadPool::run(int pieces, const Task& task) {
  start();
  task_ = &task;
  unmade_.store(pieces);
  const uint64_t number = (work_.load() >> 32) + 1;
  work_.store(number << 32 | uint32_t(pieces));
  bell_.fetch_add(1);
  if (asleep_.load() > 0) futex_wake_all(bell_);
  run_pieces();
  for (int spins = 0; unmade_.load() > 0; ++spins)
    spins < kSpins ? pause_cpu() : void(sched_yield());
}

// A thread that has taken a piece has one of the call under way, which does not end without it.
bool ThreadPool::run_pieces() {
  bool has_helped = false;
  for (uint64_t work = work_.load(); uint32_t(work) > 0;) {
    if (!work_.compare_exchange_weak(work, work - 1)) continue;
    (*task_)(int(uint32_t(work)) - 1);
    unmade_.fetch_sub(1);
    has_helped = true;
    work = work_.load();
  }
  return has_helped;
}

void ThreadPool::run_thread() {
  Clock::time_point idle_since = Clock::now();
  while (!stop_.load()) {
    const uint32_t bell = bell_.load();
    if (run_pieces()) {
      idle_since = Clock::now();
    } else if (Clock::now() - idle_since < kIdle) {
      pause_cpu();
    } else {
      asleep_.fetch_add(1);
      if (uint32_t(work_.load()) == 0 && !stop_.load()) futex_wait(bell_, bell, kNap);
      asleep_.fetch_sub(1);
      idle_since = Clock::now();
    }
  }
}

}  // namespace smp::waiting
