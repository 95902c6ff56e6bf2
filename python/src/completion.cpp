#include "completion.h"

#include <chrono>

namespace smp::pytorch {
namespace {

// Between two looks at messages under way: far below what a thread notices, and 1 % of a CPU.
constexpr std::chrono::microseconds kNap{50};

}  // namespace

void Completion::watch(c10::intrusive_ptr<TorchWork> work, bool is_message) {
  std::lock_guard guard(mutex_);
  Queue& queue = is_message ? messages_ : collectives_;
  queue.works.push_back(std::move(work));
  if (!queue.thread.joinable())
    queue.thread = std::thread([this, &queue, is_message] { run(queue, !is_message); });
  queue.filled.notify_one();
}

void Completion::stop() {
  {
    std::lock_guard guard(mutex_);
    stopping_ = true;
    collectives_.filled.notify_one();
    messages_.filled.notify_one();
  }
  for (Queue* queue : {&collectives_, &messages_})
    if (queue->thread.joinable()) queue->thread.join();
}

void Completion::run(Queue& queue, bool in_order) {
  std::vector<c10::intrusive_ptr<TorchWork>> works;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (works.empty()) queue.filled.wait(lock, [&] { return stopping_ || !queue.works.empty(); });
    for (auto& work : queue.works) works.push_back(std::move(work));
    queue.works.clear();
    if (works.empty()) return;
    lock.unlock();
    if (in_order) {
      for (const auto& work : works) work->settle();
      works.clear();
    } else {
      std::erase_if(works, [](const auto& work) { return work->settle_now(); });
      if (!works.empty()) std::this_thread::sleep_for(kNap);
    }
    lock.lock();
  }
}

}  // namespace smp::pytorch
