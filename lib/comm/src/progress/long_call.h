#pragma once

#include <atomic>
#include <chrono>

namespace smp::progress {

// Detects whether the caller of a long call waits for it at once, or leaves it alone and does
// something else. Time that the caller spends waiting for other long calls does not count: if
// several calls are waited for one after the other, all are wanted. Each thread has one `waited`,
// its total time in waits for long calls, and passes it to leave() and wait().
//
// Thread rule: only the caller calls leave() and was_left_alone(), before and after other threads
// may wait.
class LongCall {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Span = std::chrono::nanoseconds;
  static constexpr std::chrono::microseconds kAtOnce{200};

  // The caller continues without waiting. Much of the call may be done by now.
  void leave(Time now, const Span& waited) {
    left_ = now;
    waited_ = &waited;
    waited_then_ = waited;
  }
  bool is_left() const { return left_ != Time(); }

  // A thread, the caller's or another, begins to wait for the call.
  void wait(Time now, const Span& waited) {
    const Span of_it = waited_ == &waited ? waited - waited_then_ : Span(0);
    if (now - left_ - of_it < kAtOnce) is_wanted_.store(true);
  }

  bool was_left_alone(Time now) const { return !is_wanted_.load() && now - left_ > kAtOnce; }

 private:
  Time left_;
  const Span* waited_ = nullptr;
  Span waited_then_{0};
  std::atomic<bool> is_wanted_{false};
};

}  // namespace smp::progress
