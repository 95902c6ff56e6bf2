#pragma once

#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

namespace smp::system {

// While this object lives, its thread takes no signals, and a thread that it starts never does: no
// handler runs there, whoever installed it. Signals that the thread itself causes (SIGSEGV, for
// example) still arrive. Use it in the thread that made it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// A thread that takes no signals: other threads wait for them, and this one is never interrupted.
template <typename Work>
std::thread start_without_signals(Work&& work) {
  const SignalsBlocked blocked;
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(),
                            "cannot start a thread (limit of processes, see ulimit -u)");
  }
}

}  // namespace smp::system
