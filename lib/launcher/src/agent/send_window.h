#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace smp::agent {

// A send window: how far the messages of files run ahead of the slowest host. Bytes are bounded,
// since they wait in memory for every host. Messages are bounded too, since a host with a slow file
// system acknowledges nothing while it writes. One thread.
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
  // `messages`: since the beginning, by every host.
  void taken(uint64_t messages) {
    for (; taken_ < messages && !ahead_.empty(); ++taken_) {
      bytes_ -= ahead_.front();
      ahead_.pop_front();
    }
  }

 private:
  std::deque<size_t> ahead_;  // bytes of each
  size_t bytes_ = 0;          // of all of these
  uint64_t taken_ = 0;
};

}  // namespace smp::agent
