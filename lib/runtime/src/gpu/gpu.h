#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "gpu/device_collectives.h"
#include "kernels/device_functions.h"
#include "smp/comm/device/device_memory.h"
#include "smp/plan/runinfo/step_trace.h"
#include "smp/runtime/gpu/gpu_loader.h"

namespace smp::gpu {

// Is told of each block of GPU memory that tensors allocate and free, on the thread that does so.
class AllocationListener {
 public:
  virtual ~AllocationListener() = default;
  virtual void allocated(const void* block, int64_t bytes) noexcept = 0;
  virtual void freed(const void* block) noexcept = 0;
};

// Timestamps on the stream of a rank's GPU, converted to the host's clock.
class GpuMarks : public runinfo::ActionMarks {
 public:
  // Aligns the GPU's clock with the host's. Call before the first mark and again from time to time,
  // because clocks drift. Waits for the GPU.
  virtual void align() = 0;
};

// A Gpu is the interface to a rank's GPU beyond torch's operations. libsmp_cuda.so implements it;
// tests have an implementation by host threads with CPU tensors. Used by the rank's own thread.
class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual c10::Device device() const = 0;  // of the rank's tensors
  virtual std::string name() const = 0;
  virtual const kernels::DeviceFunctions& functions() const = 0;
  virtual device::DeviceMemory& memory() = 0;
  // Collectives between GPUs. Throws std::runtime_error with the reason if there are none.
  virtual DeviceCollectivesLibrary& collectives() = 0;

  virtual GpuMarks& marks() = 0;
  // nullptr: no listener.
  virtual void listen(AllocationListener* listener) = 0;
  // How often since the start the allocator had to free its cache because the GPU had no memory
  // left (num_alloc_retries). Each time all streams wait.
  virtual int64_t cache_flushes() const = 0;
};

inline c10::Device device_of(const Gpu* gpu) {
  return gpu != nullptr ? gpu->device() : c10::Device(c10::DeviceType::CPU);
}

}  // namespace smp::gpu

// The exports of libsmp_cuda.so. The program calls the first one and compares the result with
// SMP_CUDA_INTERFACE before anything else, because the rest is C++ of one build.
extern "C" {
const char* smp_cuda_interface();
// The caller owns the result; nullptr with `error` set on failure.
smp::gpu::Gpu* smp_cuda_open(const smp::gpu::GpuRequest& request, std::string& error);
}
