#include "cuda/device_copies.h"

#include <c10/cuda/CUDAStream.h>

#include <stdexcept>

namespace smp::cuda {
namespace {

class DeviceCopy final : public Copy {
 public:
  explicit DeviceCopy(cudaStream_t stream) : end_(stream) {}

  bool done() override {
    const cudaError_t error = cudaEventQuery(end_.get());
    if (error == cudaErrorNotReady) return false;
    check(error, "a copy");
    return true;
  }
  void wait() override { check(cudaEventSynchronize(end_.get()), "a copy"); }

 private:
  Event end_;
};

// One for the process: a rank has one GPU.
cudaStream_t stream_to_host() {
  static const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/true);
  return stream.stream();
}

}  // namespace

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA refuses ") + what + ": " +
                             cudaGetErrorString(error));
  }
}

Event::Event(cudaStream_t stream) {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event");
  const cudaError_t error = cudaEventRecord(event_, stream);
  if (error != cudaSuccess) cudaEventDestroy(event_);
  check(error, "an event");
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

bool DeviceCopies::holds(const void* data) const {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "a look at a pointer");
  return attributes.type == cudaMemoryTypeDevice;
}

void DeviceCopies::pin(void* memory, int64_t bytes) {
  check(cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterDefault),
        "to pin memory of the host");
}

void DeviceCopies::unpin(void* memory) {
  cudaHostUnregister(memory);  // a rank that fails may have no GPU any more
}

CopyPtr DeviceCopies::start_to_host(void* to, const void* from, int64_t bytes) {
  const Event computed(c10::cuda::getCurrentCUDAStream().stream());
  const cudaStream_t stream = stream_to_host();
  check(cudaStreamWaitEvent(stream, computed.get(), 0), "to wait for an event");
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream),
        "a copy to the host");
  return std::make_unique<DeviceCopy>(stream);
}

CopyPtr DeviceCopies::start_to_device(void* to, const void* from, int64_t bytes) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream),
        "a copy to the device");
  return std::make_unique<DeviceCopy>(stream);
}

}  // namespace smp::cuda
