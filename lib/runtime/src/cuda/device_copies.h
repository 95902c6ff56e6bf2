#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "smp/comm/device/device_memory.h"

namespace smp::cuda {

// Throws std::runtime_error "CUDA: <what> failed: ..." unless `error` is cudaSuccess. `what`: the
// failed operation, as in "creating an event".
void check(cudaError_t error, const char* what);

// A point on a stream.
class Event {
 public:
  explicit Event(cudaStream_t stream);  // the end of all work enqueued so far
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;

  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// A stream with one user, which does not wait for the default stream. Torch's streams come from a
// pool that it hands out in turn, so two users may get the same one.
class Stream {
 public:
  Stream();                                  // on the current GPU
  ~Stream() { cudaStreamDestroy(stream_); }  // enqueued work still ends
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Makes `stream` wait for the work enqueued on the current stream.
void follow_current(cudaStream_t stream);
// Done when all work enqueued on the stream so far is done.
device::CopyPtr copy_until_now(cudaStream_t stream);

// Copies to and from the GPU that is current now and whenever this is used. Each direction has a
// stream of its own, on which no kernel runs. Kernels run on the current stream. The PyTorch
// backend has its own DeviceMemory (python/src/cuda_device.cpp) by torch's device interface,
// because it must not link the CUDA runtime.
class DeviceCopies final : public device::DeviceMemory {
 public:
  bool holds(const void* data) const override;
  void pin(void* memory, int64_t bytes) override;
  void unpin(void* memory) override;
  device::CopyPtr until_now() override;
  device::CopyPtr start_to_host(void* to, const void* from, int64_t bytes,
                                device::Copy& behind) override;
  device::CopyPtr start_to_device(void* to, const void* from, int64_t bytes,
                                  device::Copy& behind) override;

 private:
  const Stream to_host_, to_device_;
};

}  // namespace smp::cuda
