#include "cuda/cuda_runtime.h"

#include <c10/cuda/CUDAStream.h>

namespace smp::cuda {
namespace {

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

device::CudaRuntime make_cuda_runtime() {
  device::CudaRuntime runtime;
  runtime.current_stream = [] { return c10::cuda::getCurrentCUDAStream().stream(); };
  runtime.cudaDeviceGetStreamPriorityRange = [](int* least, int* most) -> int {
    return ::cudaDeviceGetStreamPriorityRange(least, most);
  };
  runtime.cudaStreamCreateWithPriority = [](void** stream, unsigned flags, int priority) -> int {
    cudaStream_t made = nullptr;
    const cudaError_t error = ::cudaStreamCreateWithPriority(&made, flags, priority);
    *stream = made;
    return error;
  };
  runtime.cudaStreamDestroy = [](void* stream) -> int {
    return ::cudaStreamDestroy(stream_of(stream));
  };
  runtime.cudaStreamWaitEvent = [](void* stream, void* event, unsigned flags) -> int {
    return ::cudaStreamWaitEvent(stream_of(stream), event_of(event), flags);
  };
  runtime.cudaEventCreateWithFlags = [](void** event, unsigned flags) -> int {
    cudaEvent_t made = nullptr;
    const cudaError_t error = ::cudaEventCreateWithFlags(&made, flags);
    *event = made;
    return error;
  };
  runtime.cudaEventDestroy = [](void* event) -> int { return ::cudaEventDestroy(event_of(event)); };
  runtime.cudaEventRecord = [](void* event, void* stream) -> int {
    return ::cudaEventRecord(event_of(event), stream_of(stream));
  };
  runtime.cudaEventQuery = [](void* event) -> int { return ::cudaEventQuery(event_of(event)); };
  runtime.cudaEventSynchronize = [](void* event) -> int {
    return ::cudaEventSynchronize(event_of(event));
  };
  runtime.cudaMemcpyAsync = [](void* to, const void* from, size_t bytes, int kind,
                               void* stream) -> int {
    return ::cudaMemcpyAsync(to, from, bytes, static_cast<cudaMemcpyKind>(kind), stream_of(stream));
  };
  runtime.cudaHostRegister = [](void* memory, size_t bytes, unsigned flags) -> int {
    return ::cudaHostRegister(memory, bytes, flags);
  };
  runtime.cudaHostUnregister = [](void* memory) -> int { return ::cudaHostUnregister(memory); };
  runtime.cudaGetLastError = []() -> int { return ::cudaGetLastError(); };
  runtime.cudaGetErrorString = [](int error) {
    return ::cudaGetErrorString(static_cast<cudaError_t>(error));
  };
  return runtime;
}

}  // namespace

const device::CudaRuntime& cuda_runtime() {
  static const device::CudaRuntime runtime = make_cuda_runtime();
  return runtime;
}

void check(cudaError_t error, const char* what) { cuda_runtime().check(error, what); }

bool DeviceCopies::holds(const void* data) const {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "reading pointer attributes");
  return attributes.type == cudaMemoryTypeDevice;
}

}  // namespace smp::cuda
