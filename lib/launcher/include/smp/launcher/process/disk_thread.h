#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>

namespace smp::process {

// Does work on files in a thread of its own, in order. The caller goes on, and so do its
// heartbeats, when a file system hangs. The first piece of work starts the thread. Called from one
// thread.
class DiskThread {
 public:
  static constexpr size_t kMostBytes = 16 << 20;

  DiskThread();
  ~DiskThread();  // does not wait: what is not done yet is left to the thread
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;

  // `bytes`: what the work holds until it is done. It must own what it uses.
  void add(size_t bytes, std::function<void()> work);

  // More than kMostBytes wait: time to bring less.
  bool full() const;
  // Until all is done; false: it was not within the time.
  bool wait(std::chrono::milliseconds time);
  // The first thing that work has thrown since the last call; null: none.
  std::exception_ptr take_error();
  // Readable when something was done since the last forget_done().
  int event_fd() const;
  void forget_done();

 private:
  class Queue;
  std::shared_ptr<Queue> queue_;  // with the thread, which may outlive us
};

}  // namespace smp::process
