#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace smp::system {

// Takes signals that this process is sent on a thread of its own, so that no handler runs on a
// thread that computes: products of matrices that are generated at run time (oneDNN's) keep other
// things than the stack in the stack pointer, and the kernel would write a handler's frame over
// weights. The thread may call whatever it likes.
//
// From its making on, the signals are blocked in the calling thread and in all that it starts, so
// it is made before others are. One that has come before, while it was blocked, is taken too. They
// stay blocked when it ends: nothing that comes late ends the process.
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
