#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "smp/comm/communicator.h"
#include "smp/comm/device_memory.h"

namespace smp {

// The calls of one group of ranks that each have a GPU of their own, by a library that moves bytes
// between GPUs: NCCL (cuda/nccl_library.cpp); tests have one of host threads. Each call runs on a
// stream of the group's own, behind what the device was asked to compute before. Calls come from
// the rank's own thread.
class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  // Whether all ranks have come together. Throws std::runtime_error where they cannot.
  virtual bool is_ready() = 0;

  // As those of Communicator. Throw std::runtime_error where they cannot start.
  virtual CopyPtr all_reduce(const void* in, void* out, int64_t count, DType dtype,
                             ReduceOp op) = 0;
  virtual CopyPtr all_gather(const void* in, void* out, int64_t count, DType dtype) = 0;
  virtual CopyPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                 ReduceOp op) = 0;
  virtual CopyPtr broadcast(void* buffer, int64_t count, DType dtype, int root) = 0;

  // Any thread:
  virtual std::string error() = 0;  // what went wrong under way; empty: nothing
  virtual void abort() = 0;         // what is under way ends, and nothing starts any more
};

// What rank 0 of a group draws, and all need.
using DeviceGroupId = std::array<char, 128>;

class DeviceCollectivesLibrary {
 public:
  virtual ~DeviceCollectivesLibrary() = default;
  virtual DeviceGroupId fresh_id() = 0;
  // Begins to come together; never waits for another rank.
  virtual std::unique_ptr<DeviceCollectives> join(const DeviceGroupId& id, int rank, int size) = 0;
};

}  // namespace smp
