#include "gpu/gpu_ledger.h"

#include <fmt/format.h>

#include "ledger/ledger_state.h"

namespace smp::gpu {

GpuLedger::GpuLedger(Gpu& gpu, ledger::MemoryLedger& ledger) : gpu_(gpu), ledger_(ledger) {
  gpu_.listen(this);
}

GpuLedger::~GpuLedger() { gpu_.listen(nullptr); }

void GpuLedger::allocated(const void* block, int64_t bytes) noexcept {
  ledger::MemoryCharge charge(ledger_, ledger::current_category(), bytes);
  const std::scoped_lock lock(mutex_);
  blocks_.insert_or_assign(block, std::move(charge));
}

void GpuLedger::freed(const void* block) noexcept {
  const std::scoped_lock lock(mutex_);
  blocks_.erase(block);
}

ledger::OutOfMemory gpu_out_of_memory(const ledger::MemoryLedger& ledger, const std::string& said) {
  const std::string where = to_string(ledger.phase());
  const ledger::MemoryUse live = ledger.live();
  std::string text = fmt::format("rank {}: out of GPU memory in {} with {} bytes in use: {}",
                                 ledger.rank(), where, live.bytes, said.substr(0, said.find('\n')));
  std::string items;
  for (const ledger::MemoryItem& item : ledger.largest()) {
    items += fmt::format("{}{} bytes of {} ({})", items.empty() ? "; largest: " : ", ", item.bytes,
                         name_of(item.category), item.what);
  }
  return {where, text + items};
}

}  // namespace smp::gpu
