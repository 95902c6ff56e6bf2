#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "smp/plan/spec/plan.h"

namespace smp::gpu {
class Gpu;
}

namespace smp::record {

// How often a GPU's allocator had to give back all that it kept for later, step by step; the first
// time is told where the rank talks. Plan and GPU must outlive it.
class CacheFlushes {
 public:
  // `out` may be null.
  CacheFlushes(const Plan& plan, const gpu::Gpu& gpu, int64_t rank, std::FILE* out);
  int64_t of_step(int64_t step);

 private:
  const Plan& plan_;
  const gpu::Gpu& gpu_;
  const int64_t rank_;
  std::FILE* const out_;
  int64_t before_;
  bool has_told_ = false;
};

// What is told: training goes on, slower, and the next degree of sharding would make room.
std::string cache_flush_warning(const Plan& plan, int64_t rank, int64_t step, int64_t flushes);

}  // namespace smp::record
