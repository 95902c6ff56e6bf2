#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace smp::waiting {

// Threads of a rank that help it to sum and copy in long calls, where its host has spare CPUs: one
// CPU sums more slowly than a GPU's link copies. They start when they are first needed, and sleep
// in between.
class ThreadPool {
 public:
  using Task = std::function<void(int i)>;  // makes the i-th piece

  explicit ThreadPool(int count) : count_(count) {}
  ~ThreadPool();

  int count() const { return count_; }
  void set_count(int count) { count_ = std::max(count, int(threads_.size())); }  // no thread ends
  // Runs task(0) to task(pieces - 1) on this thread and the pool; returns when all are done. One
  // call at a time. The task must not throw.
  void run(int pieces, const Task& task);

 private:
  void start();
  bool run_pieces();  // whether there was anything to do
  void run_thread();

  int count_;
  std::vector<std::thread> threads_;
  const Task* task_ = nullptr;  // of the call under way
  // The call's number in the upper 32 bits; in the lower ones how many pieces nobody has taken.
  std::atomic<uint64_t> work_{0};
  std::atomic<int> unmade_{0};  // pieces that are not made yet
  std::atomic<uint32_t> bell_{0};
  std::atomic<int> asleep_{0};
  std::atomic<bool> stop_{false};
};

// The number of pool threads for each of `ranks` ranks on `cpus` CPUs. Besides them the engine's
// thread makes the call, and the rank's own thread queues work on its device. With two CPUs for a
// rank there is one pool thread all the same: without it a call takes a fifth longer.
int default_pool_threads(int cpus, int ranks);

}  // namespace smp::waiting
