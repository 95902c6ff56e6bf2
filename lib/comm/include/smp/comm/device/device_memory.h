#pragma once

#include <cstdint>
#include <memory>

namespace smp::device {

// An asynchronous copy between a device's memory and the host's.
class Copy {
 public:
  virtual ~Copy() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;
  // For a copy to the device: work that is queued on the device from now on waits for the copy.
  virtual void follow() = 0;
};
using CopyPtr = std::unique_ptr<Copy>;

// The interface to a device's memory; the runtime and tests implement it. The rank's own thread
// uses it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Whether `data` is in memory of the device. Otherwise it is the host's.
  virtual bool holds(const void* data) const = 0;

  // Pins (page-locks) host memory that copies use often. Unpin it before it is freed.
  virtual void pin(void* memory, int64_t bytes) = 0;
  virtual void unpin(void* memory) = 0;

  // Copies nothing. It is a point of the device's queue, like an event: done when all work queued
  // before it is done.
  virtual CopyPtr until_now() = 0;
  // Start a copy. It runs after `behind`, a point from until_now(), and after earlier copies in its
  // direction. It overlaps work that was queued on the device since then. Copies to the device end
  // in order. `from` must stay valid until the copy is done; `behind` need not.
  virtual CopyPtr start_to_host(void* to, const void* from, int64_t bytes, Copy& behind) = 0;
  virtual CopyPtr start_to_device(void* to, const void* from, int64_t bytes, Copy& behind) = 0;
};

}  // namespace smp::device
