#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "gpu/device_collectives.h"
#include "kernels/device_functions.h"
#include "smp/comm/device/device_memory.h"
#include "smp/plan/runinfo/step_trace.h"
#include "smp/runtime/gpu/gpu_door.h"

namespace smp::gpu {

// Hears of each block of a GPU's memory that tensors take and give back, on the thread that does.
class AllocationListener {
 public:
  virtual ~AllocationListener() = default;
  virtual void allocated(const void* block, int64_t bytes) noexcept = 0;
  virtual void freed(const void* block) noexcept = 0;
};

// Marks on the stream of a rank's GPU, whose clock is laid on the host's.
class GpuMarks : public runinfo::ActionMarks {
 public:
  // Before the first mark, and again where long has passed. Waits for the GPU.
  virtual void align() = 0;
};

// A Gpu is all that a rank needs of one beyond torch's operations. libsmp_cuda.so has the real one;
// tests have one of host threads, whose tensors are the CPU's. Used by the rank's own thread.
class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual c10::Device device() const = 0;  // where the rank's tensors are
  virtual std::string name() const = 0;
  virtual const kernels::DeviceFunctions& functions() const = 0;
  virtual device::DeviceMemory& memory() = 0;
  // Calls between GPUs. Throws std::runtime_error, saying why, where there are none.
  virtual DeviceCollectivesLibrary& collectives() = 0;

  virtual GpuMarks& marks() = 0;
  // nullptr: nobody any more.
  virtual void listen(AllocationListener* listener) = 0;
  // How often, since the start, the allocator had to give back all that it kept for later because
  // the GPU had no more: each time all streams wait.
  virtual int64_t cache_flushes() const = 0;
};

inline c10::Device device_of(const Gpu* gpu) {
  return gpu != nullptr ? gpu->device() : c10::Device(c10::DeviceType::CPU);
}

}  // namespace smp::gpu

// What libsmp_cuda.so exports. The program asks for the first alone until it is what it was built
// with itself, SMP_CUDA_INTERFACE: everything else is C++.
extern "C" {
const char* smp_cuda_interface();
// The caller's own; nullptr with `error` set.
smp::gpu::Gpu* smp_cuda_open(const smp::gpu::GpuRequest& request, std::string& error);
}
