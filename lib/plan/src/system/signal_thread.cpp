#include "smp/plan/system/signal_thread.h"

#include <utility>

#include "smp/plan/system/signals_blocked.h"

namespace smp::system {

SignalThread::SignalThread(std::vector<int> numbers, std::function<void(int)> take)
    : any_(numbers.at(0)) {
  sigemptyset(&numbers_);
  for (const int number : numbers) sigaddset(&numbers_, number);
  pthread_sigmask(SIG_BLOCK, &numbers_, nullptr);
  thread_ = start_without_signals([this, take = std::move(take)] {
    for (int number = 0; sigwait(&numbers_, &number) == 0 && !ended_;) take(number);
  });
}

SignalThread::~SignalThread() {
  ended_ = true;
  pthread_kill(thread_.native_handle(), any_);
  thread_.join();
}

}  // namespace smp::system
