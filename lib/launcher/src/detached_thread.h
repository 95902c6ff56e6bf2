#pragma once

#include <signal.h>

#include <functional>
#include <thread>

namespace smp {

// For calls that may never return: nobody waits for the thread, and it takes no signals, which
// others wait for.
inline void run_detached(std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(std::move(work)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace smp
