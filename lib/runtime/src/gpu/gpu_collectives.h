#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/spec/plan.h"

namespace smp::gpu {

// Which groups of a plan for GPUs use NCCL (parallel.collectives, parallel.data_collectives), and
// whether they can: NCCL refuses ranks that share a GPU. Pure.

// Whether any group of `rank` uses NCCL; the same for all ranks.
bool uses_nccl(const Plan& plan, int64_t rank);

struct GpuLocation {
  uint64_t host = 0;
  int64_t index = 0;  // of the GPU on its host

  bool operator==(const GpuLocation&) const = default;
};
// Throws ConfigError if two ranks share a GPU in a group of `rank` that uses NCCL. `places` is each
// rank's GPU.
void check_own_gpus(const Plan& plan, int64_t rank, const std::vector<GpuLocation>& places);

}  // namespace smp::gpu
