#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace smp::gpu {

class Gpu;  // gpu.h

// What a rank wants of a GPU.
struct GpuRequest {
  int64_t local_rank = 0;          // ranks of a host take its GPUs in turn, and may share one
  int64_t memory_limit_bytes = 0;  // of this rank, what torch keeps for later included; 0 = none
  bool deterministic = false;      // torch's own kernels must repeat to the bit
};

// How a rank comes to its GPU; on the thread that will compute there, whose current GPU it is from
// then on. Throws ConfigError where there is none to be had.
using OpenGpu = std::function<std::shared_ptr<Gpu>(const GpuRequest&)>;

// By libsmp_cuda.so: the file `path`, or where that is "" the one beside this program.
OpenGpu gpus_of_module(const std::string& path);

}  // namespace smp::gpu
