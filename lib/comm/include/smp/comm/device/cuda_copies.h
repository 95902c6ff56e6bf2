#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "smp/comm/device/device_memory.h"

namespace smp::device {

// The functions of the CUDA runtime that copies need. A library that links CUDA fills them in; one
// that does not takes those that its process has loaded. Streams and events are opaque, errors are
// CUDA's numbers.
struct CudaRuntime {
  // The stream that this thread's kernels run on.
  std::function<void*()> current_stream;

  int (*cudaDeviceGetStreamPriorityRange)(int* least, int* most) = nullptr;
  int (*cudaStreamCreateWithPriority)(void** stream, unsigned flags, int priority) = nullptr;
  int (*cudaStreamDestroy)(void* stream) = nullptr;
  int (*cudaStreamWaitEvent)(void* stream, void* event, unsigned flags) = nullptr;
  int (*cudaEventCreateWithFlags)(void** event, unsigned flags) = nullptr;
  int (*cudaEventDestroy)(void* event) = nullptr;
  int (*cudaEventRecord)(void* event, void* stream) = nullptr;
  int (*cudaEventQuery)(void* event) = nullptr;
  int (*cudaEventSynchronize)(void* event) = nullptr;
  int (*cudaMemcpyAsync)(void* to, const void* from, size_t bytes, int kind,
                         void* stream) = nullptr;
  int (*cudaHostRegister)(void* memory, size_t bytes, unsigned flags) = nullptr;
  int (*cudaHostUnregister)(void* memory) = nullptr;
  int (*cudaGetLastError)() = nullptr;
  const char* (*cudaGetErrorString)(int error) = nullptr;

  // Fills in the functions of the libraries that the process has loaded. Throws std::runtime_error
  // that names the function that none of them has.
  static CudaRuntime loaded(std::function<void*()> current_stream);

  // Throws std::runtime_error "CUDA: <what> failed: ..." unless `error` is 0. `what`: the failed
  // operation, as in "creating an event".
  void check(int error, const char* what) const;
};

// A stream with one user, which does not wait for the default stream. Torch's streams come from a
// pool that it hands out in turn, so two users may get the same one. `runtime` outlives it and the
// points that it returns.
class CudaStream {
 public:
  explicit CudaStream(const CudaRuntime& runtime);  // on the current GPU, of the highest priority
  ~CudaStream();                                    // enqueued work still ends
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void* get() const { return stream_; }
  void follow_current() const;  // waits for the work enqueued on the current stream
  CopyPtr until_now() const;    // done when all work enqueued on it so far is done

 private:
  const CudaRuntime& runtime_;
  void* stream_ = nullptr;
};

// Copies to and from the GPU that is current now and whenever this is used. Each direction has a
// stream of its own, on which no kernel runs. Kernels run on the current stream. Who derives from
// it says which memory is the device's: holds().
class CudaCopies : public DeviceMemory {
 public:
  explicit CudaCopies(const CudaRuntime& runtime);

  void pin(void* memory, int64_t bytes) override;
  void unpin(void* memory) override;
  CopyPtr until_now() override;
  CopyPtr start_to_host(void* to, const void* from, int64_t bytes, Copy& behind) override;
  CopyPtr start_to_device(void* to, const void* from, int64_t bytes, Copy& behind) override;

 private:
  CopyPtr start(const CudaStream& on, void* to, const void* from, int64_t bytes, int kind,
                const char* what, Copy& behind) const;

  const CudaRuntime& runtime_;
  const CudaStream to_host_, to_device_;
};

}  // namespace smp::device
