#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "smp/comm/device/device_memory.h"

namespace smp::cuda {

// Throws std::runtime_error that says what was asked for.
void check(cudaError_t error, const char* what);

// A point on a stream.
class Event {
 public:
  explicit Event(cudaStream_t stream);  // all that the stream was asked for so far
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;

  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// A stream of its own, on which nothing waits for the default one. torch's come from a pool that it
// deals out again and again, so that two users may have the same.
class Stream {
 public:
  Stream();                                  // of the GPU that is current
  ~Stream() { cudaStreamDestroy(stream_); }  // what it was asked for still ends
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// The stream goes on behind what the current one was asked for.
void follow_current(cudaStream_t stream);
// Done when all is that the stream was asked for so far.
device::CopyPtr copy_until_now(cudaStream_t stream);

// Copies of the GPU that is current, now and later: to the host and to it on a stream each, which
// no kernel runs on. What the GPU is asked to compute is what the current stream is asked for.
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
