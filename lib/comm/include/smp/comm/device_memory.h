#pragma once

#include <cstdint>
#include <memory>

namespace smp {

// A copy under way between a device's memory and the host's.
class Copy {
 public:
  virtual ~Copy() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;
  // Of a copy to the device: what it is asked to compute from now on sees it.
  virtual void follow() = 0;
};
using CopyPtr = std::unique_ptr<Copy>;

// The one door to a device's memory for whoever moves bytes. Used by the rank's own thread.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Whether it is memory of the device; else it is the host's.
  virtual bool holds(const void* data) const = 0;

  // Host memory that copies will use often: with it they need no copy of their own. Undone before
  // the memory goes.
  virtual void pin(void* memory, int64_t bytes) = 0;
  virtual void unpin(void* memory) = 0;

  // Nothing to copy: done when the device has computed what it was asked to before.
  virtual CopyPtr until_now() = 0;
  // Copies come behind `behind`, a point of until_now(), and behind those of their direction that
  // were started before, but not behind what the device was asked to compute since, beside which
  // they go. Those to the device end in their order. `from` must stay until the copy is done;
  // `behind` need not.
  virtual CopyPtr start_to_host(void* to, const void* from, int64_t bytes, Copy& behind) = 0;
  virtual CopyPtr start_to_device(void* to, const void* from, int64_t bytes, Copy& behind) = 0;
};

}  // namespace smp
