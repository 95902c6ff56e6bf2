#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "gpu/gpu.h"
#include "smp/runtime/ledger/memory_ledger.h"

namespace smp::gpu {

// While it lives, charges a GPU's blocks to the rank's ledger, in the category of the allocating
// thread. The ledger itself has no limit: the GPU's allocator enforces
// GpuRequest::memory_limit_bytes, after freeing its cache.
class GpuLedger final : public AllocationListener {
 public:
  GpuLedger(Gpu& gpu, ledger::MemoryLedger& ledger);
  ~GpuLedger() override;
  GpuLedger(const GpuLedger&) = delete;
  GpuLedger& operator=(const GpuLedger&) = delete;

  void allocated(const void* block, int64_t bytes) noexcept override;
  void freed(const void* block) noexcept override;

 private:
  Gpu& gpu_;
  ledger::MemoryLedger& ledger_;
  std::mutex mutex_;
  std::unordered_map<const void*, ledger::MemoryCharge> blocks_;
};

// The error of a rank whose GPU is out of memory; `said` is the allocator's own first line.
ledger::OutOfMemory gpu_out_of_memory(const ledger::MemoryLedger& ledger, const std::string& said);

}  // namespace smp::gpu
