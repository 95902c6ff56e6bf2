#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "cuda/cuda_runtime.h"
#include "cuda/device_marks.h"
#include "cuda/device_runner.h"
#include "cuda/gpu_functions.h"
#include "cuda/nccl_library.h"
#include "gpu/gpu.h"

// The entry points of libsmp_cuda.so: the GPU of a rank (gpu.h).
namespace smp::cuda {
namespace {

// The listener for allocations. The allocator never removes its trackers, so the process has one.
std::atomic<gpu::AllocationListener*>& listener() {
  static std::atomic<gpu::AllocationListener*> one{nullptr};
  return one;
}

void hear(const c10::cuda::CUDACachingAllocator::TraceEntry& entry) {
  using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;
  gpu::AllocationListener* const hears = listener().load();
  if (hears == nullptr) return;
  const void* const block = reinterpret_cast<const void*>(entry.addr_);
  if (entry.action_ == Entry::ALLOC) hears->allocated(block, static_cast<int64_t>(entry.size_));
  if (entry.action_ == Entry::FREE_REQUESTED) hears->freed(block);
}

class CudaGpu final : public gpu::Gpu {
 public:
  CudaGpu(c10::DeviceIndex index, const gpu::GpuRequest& request)
      : index_(index), functions_(DeviceRunner()) {
    c10::cuda::set_device(index);
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    at::globalContext().setDeterministicAlgorithms(request.deterministic, /*warn_only=*/false);
    check(cudaGetDeviceProperties(&properties_, index), "reading the GPU's properties");
    if (request.memory_limit_bytes > 0) {
      const double share = static_cast<double>(request.memory_limit_bytes) /
                           static_cast<double>(properties_.totalGlobalMem);
      c10::cuda::CUDACachingAllocator::setMemoryFraction(std::min(1.0, share), index);
    }
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(&hear);
    copies_.emplace();
  }

  c10::Device device() const override { return {c10::DeviceType::CUDA, index_}; }
  std::string name() const override { return static_cast<const char*>(properties_.name); }
  const kernels::DeviceFunctions& functions() const override { return functions_; }
  device::DeviceMemory& memory() override { return *copies_; }
  gpu::DeviceCollectivesLibrary& collectives() override {
    if (!nccl_) nccl_ = open_nccl(index_);
    return *nccl_;
  }
  gpu::GpuMarks& marks() override { return marks_; }
  void listen(gpu::AllocationListener* hears) override { listener().store(hears); }
  int64_t cache_flushes() const override {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(index_).num_alloc_retries;
  }

 private:
  const c10::DeviceIndex index_;
  cudaDeviceProp properties_{};
  GpuFunctions<DeviceRunner> functions_;
  std::optional<DeviceCopies> copies_;  // set once the GPU is current
  std::unique_ptr<gpu::DeviceCollectivesLibrary> nccl_;
  DeviceMarks marks_;
};

// "", or the reason why the process has no GPU. Sets `count` to the number of GPUs.
std::string why_no_gpu(int& count) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "no NVIDIA driver is loaded";
  }
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count == 0 ? "the driver lists no GPU (see CUDA_VISIBLE_DEVICES)" : "";
}

}  // namespace
}  // namespace smp::cuda

extern "C" {

const char* smp_cuda_interface() { return SMP_CUDA_INTERFACE; }

smp::gpu::Gpu* smp_cuda_open(const smp::gpu::GpuRequest& request, std::string& error) {
  try {
    int count = 0;
    error = smp::cuda::why_no_gpu(count);
    if (!error.empty()) return nullptr;
    const auto index = static_cast<c10::DeviceIndex>(request.local_rank % count);
    return new smp::cuda::CudaGpu(index, request);
  } catch (const std::exception& refused) {
    error = refused.what();
    return nullptr;
  }
}
}
