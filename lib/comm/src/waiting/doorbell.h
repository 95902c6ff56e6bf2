#pragma once

#include <chrono>

#include "smp/plan/system/file_descriptor.h"

namespace smp::waiting {

// Special values of NetworkProgress::wait_descriptor().
constexpr int kNoDescriptor = -1;  // it never has one
constexpr int kPollAgain = -2;     // it must be polled again soon, then asked again

// An eventfd that wakes a rank which sleeps at its network's descriptor, since no thread can wait
// for a futex and a descriptor at once. Any thread of any process that has it may ring.
class Doorbell {
 public:
  Doorbell() = default;
  explicit Doorbell(system::FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  static Doorbell make();  // throws std::system_error

  explicit operator bool() const { return bool(descriptor_); }
  int descriptor() const { return descriptor_.number(); }
  void ring() const;

  // Sleeps until somebody rings or `other`, if it is not negative, can be read; at most for
  // `limit`. Returns whether somebody has rung, which stays so until answer().
  bool sleep(int other, std::chrono::microseconds limit) const;
  void answer() const;

 private:
  system::FileDescriptor descriptor_;
};

}  // namespace smp::waiting
