#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace smp::gpu {

class Gpu;  // gpu.h

// A rank's request for a GPU.
struct GpuRequest {
  int64_t local_rank = 0;          // local_rank modulo the host's GPUs is the GPU's index
  int64_t memory_limit_bytes = 0;  // of this rank, torch's cached memory included; 0 = none
  bool deterministic = false;      // torch's own kernels must be deterministic to the bit
};

// Opens a rank's GPU. Called on the thread that will compute there; the GPU becomes that thread's
// current one. Throws ConfigError if there is none.
using GpuLoader = std::function<std::shared_ptr<Gpu>(const GpuRequest&)>;

// Opens GPUs with libsmp_cuda.so at `path`; "" = the one beside this program. The module is loaded
// when a GPU is first opened.
GpuLoader cuda_module_loader(const std::string& path);

}  // namespace smp::gpu
