#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/spec/plan.h"

namespace smp::gpu {

// Which groups of a plan for GPUs talk by NCCL (parallel.collectives, parallel.data_collectives),
// and whether they can: NCCL refuses ranks that share a GPU. Pure.

// The same on all ranks. `rank` is one that asks.
bool uses_nccl(const Plan& plan, int64_t rank);

struct GpuPlace {
  uint64_t host = 0;
  int64_t index = 0;  // of the GPU on its host

  bool operator==(const GpuPlace&) const = default;
};
// Throws ConfigError where two ranks share a GPU in a group of `rank` that talks by NCCL. `places`
// is each rank's GPU.
void check_own_gpus(const Plan& plan, int64_t rank, const std::vector<GpuPlace>& places);

}  // namespace smp::gpu
