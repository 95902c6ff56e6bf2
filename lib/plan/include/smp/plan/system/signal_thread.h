#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace smp::system {

// Handles signals on a thread of its own, so that no handler runs on a thread that computes. Matrix
// products that are generated at run time (oneDNN's) do not always keep the stack in the stack
// pointer. There the kernel would write a handler's frame over weights. The handling thread may
// call any function.
//
// From construction on, the signals are blocked in the calling thread and in all threads that it
// starts, so it must be constructed before others are started. A signal that came before, while it
// was blocked, is handled too. The signals stay blocked after destruction: a late one does not end
// the process.
class SignalThread {
 public:
  SignalThread(std::vector<int> numbers, std::function<void(int number)> take);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  sigset_t numbers_;
  const int any_;  // of them
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace smp::system
