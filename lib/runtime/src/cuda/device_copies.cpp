#include "cuda/device_copies.h"

#include <c10/cuda/CUDAStream.h>

#include <stdexcept>

namespace smp::cuda {
namespace {

void wait_on(cudaStream_t stream, const Event& event) {
  check(cudaStreamWaitEvent(stream, event.get(), 0), "waiting for an event");
}

class DeviceCopy final : public device::Copy {
 public:
  explicit DeviceCopy(cudaStream_t stream) : end_(stream) {}

  bool done() override {
    const cudaError_t error = cudaEventQuery(end_.get());
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // clears the error, which torch's next kernel would report as its own
      return false;
    }
    check(error, "copying");
    return true;
  }
  void wait() override { check(cudaEventSynchronize(end_.get()), "copying"); }
  void follow() override { hold(c10::cuda::getCurrentCUDAStream().stream()); }
  void hold(cudaStream_t stream) { wait_on(stream, end_); }

 private:
  Event end_;
};

device::CopyPtr start(const Stream& on, void* to, const void* from, int64_t bytes,
                      cudaMemcpyKind kind, const char* what, device::Copy& behind) {
  dynamic_cast<DeviceCopy&>(behind).hold(on.get());
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, on.get()), what);
  return copy_until_now(on.get());
}

}  // namespace

void follow_current(cudaStream_t stream) {
  wait_on(stream, Event(c10::cuda::getCurrentCUDAStream().stream()));
}

device::CopyPtr copy_until_now(cudaStream_t stream) { return std::make_unique<DeviceCopy>(stream); }

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA: ") + what +
                             " failed: " + cudaGetErrorString(error));
  }
}

Event::Event(cudaStream_t stream) {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating an event");
  const cudaError_t error = cudaEventRecord(event_, stream);
  if (error != cudaSuccess) cudaEventDestroy(event_);
  check(error, "recording an event");
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

Stream::Stream() {
  int least = 0, most = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &most), "reading stream priorities");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, most), "creating a stream");
}

bool DeviceCopies::holds(const void* data) const {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "reading pointer attributes");
  return attributes.type == cudaMemoryTypeDevice;
}

void DeviceCopies::pin(void* memory, int64_t bytes) {
  check(cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterDefault),
        "pinning host memory");
}

void DeviceCopies::unpin(void* memory) {
  cudaHostUnregister(memory);  // no check: a failed rank may have lost its GPU
}

device::CopyPtr DeviceCopies::until_now() {
  return copy_until_now(c10::cuda::getCurrentCUDAStream().stream());
}

device::CopyPtr DeviceCopies::start_to_host(void* to, const void* from, int64_t bytes,
                                            device::Copy& behind) {
  return start(to_host_, to, from, bytes, cudaMemcpyDeviceToHost, "copying to the host", behind);
}

device::CopyPtr DeviceCopies::start_to_device(void* to, const void* from, int64_t bytes,
                                              device::Copy& behind) {
  return start(to_device_, to, from, bytes, cudaMemcpyHostToDevice, "copying to the device",
               behind);
}

}  // namespace smp::cuda
