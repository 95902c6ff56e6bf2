#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "smp/comm/communicator.h"
#include "smp/comm/device/device_memory.h"

namespace smp::gpu {

// The calls of one group of ranks that each have a GPU of their own, by a library that moves bytes
// between GPUs: NCCL (cuda/nccl_library.cpp); tests have one of host threads. Each call runs on a
// stream of the group's own, behind what the device was asked to compute before. Never waits for
// another rank. One thread at a time, whoever asks (DeviceGroup).
class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  // Whether what was asked for last is the device's by now: to come together, then each call, for
  // which ranks may have to connect first. Until then nothing else is asked for but error() and
  // abort(). Throws std::runtime_error where it cannot be.
  virtual bool is_ready() = 0;
  // Done when the device is through with all calls so far.
  virtual device::CopyPtr until_now() = 0;

  // As those of Communicator. Throw std::runtime_error where they cannot start.
  virtual void all_reduce(const void* in, void* out, int64_t count, DType dtype,
                          comm::ReduceOp op) = 0;
  virtual void all_gather(const void* in, void* out, int64_t count, DType dtype) = 0;
  virtual void reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                              comm::ReduceOp op) = 0;
  virtual void broadcast(void* buffer, int64_t count, DType dtype, int root) = 0;

  virtual std::string error() = 0;  // what went wrong under way; empty: nothing
  virtual void abort() = 0;         // what is under way ends, and nothing is asked for any more
};

// What rank 0 of a group draws, and all need.
using DeviceGroupId = std::array<char, 128>;

class DeviceCollectivesLibrary {
 public:
  virtual ~DeviceCollectivesLibrary() = default;
  virtual DeviceGroupId fresh_id() = 0;
  // Begins to come together.
  virtual std::unique_ptr<DeviceCollectives> join(const DeviceGroupId& id, int rank, int size) = 0;
  // A thread beside the rank's own asks for this before all else that it asks of groups and copies.
  virtual void use_on_this_thread() = 0;
};

}  // namespace smp::gpu
