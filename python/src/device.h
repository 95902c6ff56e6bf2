#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "smp/comm/device/device_memory.h"

namespace smp::pytorch {

// The device that tensors of a process group lie on, where that is not the host: what the backend
// asks it for besides copies. Any thread, but for memory().
class Device {
 public:
  // Between what threads have asked the device for.
  class Point {
   public:
    virtual ~Point() = default;
    // What this thread asks for from now on comes behind it.
    virtual void follow() const = 0;
  };

  virtual ~Device() = default;

  // Whether the tensor lies on it, or on the host. Throws where it is on another device.
  virtual bool holds(const at::Tensor& tensor) const = 0;
  // Behind what this thread has asked for.
  virtual std::unique_ptr<Point> now() const = 0;
  // The tensor's memory is not used for others before what this thread has asked for is done.
  virtual void keep(const at::Tensor& tensor) const = 0;

  // Makes this thread the one that copies: what it asks for is apart from what others ask for.
  virtual void enter() = 0;
  // Of that thread. All addresses are the device's.
  virtual device::DeviceMemory& memory() = 0;
};

// Whether tensors that lie there are taken at all.
bool is_taken(const at::Device& device);

// That of the tensor; null for the host.
std::unique_ptr<Device> open_device_of(const at::Tensor& tensor);

}  // namespace smp::pytorch
