#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace smp::agent {

// A send window: the messages about files that the slowest host has not acknowledged. Its bytes are
// bounded, because they wait in memory for every host. Its messages are bounded too, because a host
// with a slow file system sends no acknowledgement while it writes. One thread.
class SendWindow {
 public:
  static constexpr size_t kBytes = 1 << 20;
  static constexpr size_t kMessages = 256;

  bool has_room() const { return bytes_ < kBytes && ahead_.size() < kMessages; }
  bool is_empty() const { return ahead_.empty(); }
  void sent(size_t bytes) {
    ahead_.push_back(bytes);
    bytes_ += bytes;
  }
  // `messages`: acknowledged by every host since the beginning.
  void taken(uint64_t messages) {
    for (; taken_ < messages && !ahead_.empty(); ++taken_) {
      bytes_ -= ahead_.front();
      ahead_.pop_front();
    }
  }

 private:
  std::deque<size_t> ahead_;  // bytes of each message in the window
  size_t bytes_ = 0;          // their sum
  uint64_t taken_ = 0;
};

}  // namespace smp::agent
