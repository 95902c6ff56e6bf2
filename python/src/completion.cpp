#include "completion.h"

#include <algorithm>

#include "poll_interval.h"
#include "smp/plan/system/signals_blocked.h"

namespace smp::pytorch {
void Completion::watch(c10::intrusive_ptr<TorchWork> work) {
  std::lock_guard guard(mutex_);
  arrived_.push_back(std::move(work));
  if (!thread_.joinable()) thread_ = system::start_without_signals([this] { run(); });
  filled_.notify_one();
}

void Completion::stop() {
  {
    std::lock_guard guard(mutex_);
    stopping_ = true;
    filled_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Completion::run() {
  std::vector<c10::intrusive_ptr<TorchWork>> works;
  std::unique_lock lock(mutex_);
  PollInterval interval;
  for (;;) {
    if (works.empty()) {
      filled_.wait(lock, [&] { return stopping_ || !arrived_.empty(); });
      interval.reset();
    }
    for (auto& work : arrived_) works.push_back(std::move(work));
    arrived_.clear();
    if (works.empty()) return;
    lock.unlock();
    if (std::erase_if(works, [](const auto& work) { return work->settle_now(); }) > 0)
      interval.reset();
    if (!works.empty()) interval.sleep();
    lock.lock();
  }
}

}  // namespace smp::pytorch
