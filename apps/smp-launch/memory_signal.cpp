#include "memory_signal.h"

#include <pthread.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <utility>

namespace smp {
namespace {

constexpr size_t kCallsOnRequest = 32;

sigset_t only_ours() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  return set;
}

}  // namespace

MemorySignal::MemorySignal(const MemoryWatch& watch) : watch_(watch) {
  const sigset_t ours = only_ours();
  pthread_sigmask(SIG_BLOCK, &ours, nullptr);
  thread_ = std::thread([this] {
    const sigset_t waited = only_ours();
    for (int number = 0; sigwait(&waited, &number) == 0 && !ended_;) {
      const std::string report = watch_.report();
      std::fputs(
          report.empty() ? "no memory to report: the rank is not training\n" : report.c_str(),
          stderr);
      std::lock_guard guard(mutex_);
      if (log_) std::fputs(log_->text(kCallsOnRequest).c_str(), stderr);
    }
  });
}

void MemorySignal::print_calls_of(std::shared_ptr<const CallLog> log) {
  std::lock_guard guard(mutex_);
  log_ = std::move(log);
}

MemorySignal::~MemorySignal() {
  ended_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
}

}  // namespace smp
