#include "gpu/gpu.h"

// A libsmp_cuda.so that has no GPU, of the interface that SMP_FAKE_INTERFACE says.
extern "C" {

const char* smp_cuda_interface() { return SMP_FAKE_INTERFACE; }

smp::gpu::Gpu* smp_cuda_open(const smp::gpu::GpuRequest& /*request*/, std::string& error) {
  error = "no NVIDIA driver is loaded";
  return nullptr;
}
}
