#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "smp/comm/communicator.h"
#include "smp/comm/device/device_memory.h"

namespace smp::gpu {

// The collectives of one group of ranks that each have their own GPU, by a library that moves bytes
// between GPUs: NCCL (cuda/nccl_library.cpp); tests have one of host threads. Each call runs on the
// group's own stream, behind the device's earlier work. Never waits for another rank. One thread at
// a time (DeviceGroup).
class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  // Whether the last request is enqueued on the device: first joining the group, then each call,
  // for which ranks may have to connect first. Until it is, only error() and abort() may be called.
  // Throws std::runtime_error if the request failed.
  virtual bool is_ready() = 0;
  // Done when the device has finished all calls so far.
  virtual device::CopyPtr until_now() = 0;

  // As in Communicator. They throw std::runtime_error if they cannot start.
  virtual void all_reduce(const void* in, void* out, int64_t count, DType dtype,
                          comm::ReduceOp op) = 0;
  virtual void all_gather(const void* in, void* out, int64_t count, DType dtype) = 0;
  virtual void reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                              comm::ReduceOp op) = 0;
  virtual void broadcast(void* buffer, int64_t count, DType dtype, int root) = 0;

  virtual std::string error() = 0;  // an asynchronous error; empty: none
  virtual void abort() = 0;         // ends the calls in flight; no call may follow
};

// A unique id that rank 0 of a group creates and all its ranks need.
using DeviceGroupId = std::array<char, 128>;

class DeviceCollectivesLibrary {
 public:
  virtual ~DeviceCollectivesLibrary() = default;
  virtual DeviceGroupId fresh_id() = 0;
  // Starts to join the group.
  virtual std::unique_ptr<DeviceCollectives> join(const DeviceGroupId& id, int rank, int size) = 0;
  // A thread other than the rank's own must call this before it uses groups and copies.
  virtual void use_on_this_thread() = 0;
};

}  // namespace smp::gpu
