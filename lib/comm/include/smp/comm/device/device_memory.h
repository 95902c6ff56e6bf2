#pragma once

#include <cstdint>
#include <memory>

namespace smp::device {

// A copy under way between a device's memory and the host's.
class Copy {
 public:
  virtual ~Copy() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;
  // For a copy to the device: what the device is asked to compute from now on sees the result.
  virtual void follow() = 0;
};
using CopyPtr = std::unique_ptr<Copy>;

// The one door to a device's memory. Used by the rank's own thread.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Whether this is memory of the device; else it is the host's.
  virtual bool holds(const void* data) const = 0;

  // Pins host memory that copies will use often, so that they need no copy of their own. Unpin it
  // before it is freed.
  virtual void pin(void* memory, int64_t bytes) = 0;
  virtual void unpin(void* memory) = 0;

  // Copies nothing; done when the device has computed what it was asked to before.
  virtual CopyPtr until_now() = 0;
  // A copy runs after `behind`, a point of until_now(), and after earlier copies in its direction,
  // but beside what the device was asked to compute since then. Copies to the device end in their
  // order. `from` must stay until the copy is done; `behind` need not.
  virtual CopyPtr start_to_host(void* to, const void* from, int64_t bytes, Copy& behind) = 0;
  virtual CopyPtr start_to_device(void* to, const void* from, int64_t bytes, Copy& behind) = 0;
};

}  // namespace smp::device
