#pragma once

#include <barrier>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

// A launch of a CUDA kernel's body (lib/runtime/src/cuda/block.h) on host threads.
namespace smp {

// Of all threads of one block.
struct HostBlockMeeting {
  explicit HostBlockMeeting(int64_t threads)
      : barrier(threads), values(static_cast<size_t>(threads)) {}
  std::barrier<> barrier;
  std::vector<double> values;
};

class HostBlock {
 public:
  HostBlock(int64_t index, int64_t count, int64_t thread, HostBlockMeeting& meeting)
      : index_(index), count_(count), thread_(thread), meeting_(&meeting) {}

  int64_t index() const { return index_; }
  int64_t count() const { return count_; }
  int64_t thread() const { return thread_; }
  int64_t threads() const { return static_cast<int64_t>(meeting_->values.size()); }

  template <typename T>
  T sum(T value) {
    return meet(value, [](T a, T b) { return a + b; });
  }
  template <typename T>
  T maximum(T value) {
    return meet(value, [](T a, T b) { return a > b ? a : b; });
  }

 private:
  template <typename T, typename Join>
  T meet(T value, const Join& join) {
    static_assert(std::is_floating_point_v<T>);
    meeting_->values[static_cast<size_t>(thread_)] = static_cast<double>(value);
    meeting_->barrier.arrive_and_wait();
    T result = static_cast<T>(meeting_->values[0]);
    for (size_t i = 1; i < meeting_->values.size(); ++i) {
      result = join(result, static_cast<T>(meeting_->values[i]));
    }
    meeting_->barrier.arrive_and_wait();  // all have read
    return result;
  }

  int64_t index_, count_, thread_;
  HostBlockMeeting* meeting_;
};

// body(block) on each thread of `blocks` blocks of `threads`; the blocks come one after the other.
template <typename Body>
void launch_on_host(int64_t blocks, int64_t threads, const Body& body) {
  for (int64_t index = 0; index < blocks; ++index) {
    HostBlockMeeting meeting(threads);
    if (threads == 1) {
      HostBlock block(index, blocks, 0, meeting);
      body(block);
      continue;
    }
    std::vector<std::jthread> running;
    for (int64_t thread = 0; thread < threads; ++thread) {
      running.emplace_back([&, thread] {
        HostBlock block(index, blocks, thread, meeting);
        body(block);
      });
    }
  }
}

}  // namespace smp
