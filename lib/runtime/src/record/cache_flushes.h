#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "smp/plan/spec/plan.h"

namespace smp::gpu {
class Gpu;
}

namespace smp::record {

// Counts for each step how often a GPU's allocator had to free its cache. Prints a warning the
// first time. Plan and GPU must outlive it.
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

// The text of the warning: training continues, slower, and the next degree of sharding would need
// less memory.
std::string cache_flush_warning(const Plan& plan, int64_t rank, int64_t step, int64_t flushes);

}  // namespace smp::record
