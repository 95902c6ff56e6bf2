#include "smp/comm/device/cuda_copies.h"

#include <dlfcn.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace smp::device {
namespace {

// CUDA's numbers (driver_types.h).
constexpr int kNotReady = 600;
constexpr int kHostToDevice = 1, kDeviceToHost = 2;
constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;

template <class Function>
void find(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  if (function == nullptr)
    throw std::runtime_error(std::string("tensors on GPUs need the function ") + name +
                             ", which no library loaded by torch has: install torch with CUDA");
}

// The end of all work enqueued on a stream when it was made.
class StreamPoint final : public Copy {
 public:
  StreamPoint(const CudaRuntime& runtime, void* stream) : runtime_(runtime) {
    runtime_.check(runtime_.cudaEventCreateWithFlags(&event_, kEventDisableTiming),
                   "creating an event");
    const int error = runtime_.cudaEventRecord(event_, stream);
    if (error != 0) runtime_.cudaEventDestroy(event_);
    runtime_.check(error, "recording an event");
  }
  ~StreamPoint() override { runtime_.cudaEventDestroy(event_); }
  StreamPoint(const StreamPoint&) = delete;
  StreamPoint& operator=(const StreamPoint&) = delete;

  bool done() override {
    const int error = runtime_.cudaEventQuery(event_);
    if (error == kNotReady) {
      runtime_.cudaGetLastError();  // otherwise torch's next kernel reports it
      return false;
    }
    runtime_.check(error, "copying");
    return true;
  }
  void wait() override { runtime_.check(runtime_.cudaEventSynchronize(event_), "copying"); }
  void follow() override { hold(runtime_.current_stream()); }
  // The stream waits for this point.
  void hold(void* stream) const {
    runtime_.check(runtime_.cudaStreamWaitEvent(stream, event_, 0), "waiting for an event");
  }

 private:
  const CudaRuntime& runtime_;
  void* event_ = nullptr;
};

}  // namespace

CudaRuntime CudaRuntime::loaded(std::function<void*()> current_stream) {
  CudaRuntime runtime;
  runtime.current_stream = std::move(current_stream);
  find("cudaDeviceGetStreamPriorityRange", runtime.cudaDeviceGetStreamPriorityRange);
  find("cudaStreamCreateWithPriority", runtime.cudaStreamCreateWithPriority);
  find("cudaStreamDestroy", runtime.cudaStreamDestroy);
  find("cudaStreamWaitEvent", runtime.cudaStreamWaitEvent);
  find("cudaEventCreateWithFlags", runtime.cudaEventCreateWithFlags);
  find("cudaEventDestroy", runtime.cudaEventDestroy);
  find("cudaEventRecord", runtime.cudaEventRecord);
  find("cudaEventQuery", runtime.cudaEventQuery);
  find("cudaEventSynchronize", runtime.cudaEventSynchronize);
  find("cudaMemcpyAsync", runtime.cudaMemcpyAsync);
  find("cudaHostRegister", runtime.cudaHostRegister);
  find("cudaHostUnregister", runtime.cudaHostUnregister);
  find("cudaGetLastError", runtime.cudaGetLastError);
  find("cudaGetErrorString", runtime.cudaGetErrorString);
  return runtime;
}

void CudaRuntime::check(int error, const char* what) const {
  if (error != 0)
    throw std::runtime_error(std::string("CUDA: ") + what +
                             " failed: " + cudaGetErrorString(error));
}

CudaStream::CudaStream(const CudaRuntime& runtime) : runtime_(runtime) {
  int least = 0, most = 0;
  runtime_.check(runtime_.cudaDeviceGetStreamPriorityRange(&least, &most),
                 "reading stream priorities");
  runtime_.check(runtime_.cudaStreamCreateWithPriority(&stream_, kStreamNonBlocking, most),
                 "creating a stream");
}

CudaStream::~CudaStream() { runtime_.cudaStreamDestroy(stream_); }

void CudaStream::follow_current() const {
  StreamPoint(runtime_, runtime_.current_stream()).hold(stream_);
}

CopyPtr CudaStream::until_now() const { return std::make_unique<StreamPoint>(runtime_, stream_); }

CudaCopies::CudaCopies(const CudaRuntime& runtime)
    : runtime_(runtime), to_host_(runtime), to_device_(runtime) {}

void CudaCopies::pin(void* memory, int64_t bytes) {
  const std::string what = "pinning " + std::to_string(bytes) + " bytes of host memory";
  runtime_.check(runtime_.cudaHostRegister(memory, static_cast<size_t>(bytes), 0), what.c_str());
}

void CudaCopies::unpin(void* memory) {
  runtime_.cudaHostUnregister(memory);  // a rank that fails may have lost its GPU
}

CopyPtr CudaCopies::until_now() {
  return std::make_unique<StreamPoint>(runtime_, runtime_.current_stream());
}

CopyPtr CudaCopies::start(const CudaStream& on, void* to, const void* from, int64_t bytes, int kind,
                          const char* what, Copy& behind) const {
  dynamic_cast<StreamPoint&>(behind).hold(on.get());
  if (bytes > 0)
    runtime_.check(runtime_.cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, on.get()),
                   what);
  return on.until_now();
}

CopyPtr CudaCopies::start_to_host(void* to, const void* from, int64_t bytes, Copy& behind) {
  return start(to_host_, to, from, bytes, kDeviceToHost, "copying to the host", behind);
}

CopyPtr CudaCopies::start_to_device(void* to, const void* from, int64_t bytes, Copy& behind) {
  return start(to_device_, to, from, bytes, kHostToDevice, "copying to the device", behind);
}

}  // namespace smp::device
