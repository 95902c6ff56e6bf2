#pragma once

#include <cuda_runtime_api.h>

#include "smp/comm/device/cuda_copies.h"

namespace smp::cuda {

// The CUDA runtime that this library is linked to; the current stream is torch's.
const device::CudaRuntime& cuda_runtime();

// CudaRuntime::check().
void check(cudaError_t error, const char* what);

// Copies between the host and the rank's GPU.
class DeviceCopies final : public device::CudaCopies {
 public:
  DeviceCopies() : device::CudaCopies(cuda_runtime()) {}
  bool holds(const void* data) const override;
};

}  // namespace smp::cuda
