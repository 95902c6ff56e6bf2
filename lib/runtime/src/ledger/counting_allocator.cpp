#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <new>

#include "ledger/ledger_state.h"
#include "smp/runtime/ledger/memory_ledger.h"

namespace smp::ledger {
namespace {

// aligned_alloc and the arena want multiples of the alignment.
size_t size_with_item(int64_t bytes) {
  return (static_cast<size_t>(bytes) + 63) / 64 * 64 + sizeof(LiveItem);
}

// Of a thread that no ledger counts for.
LiveItem* new_uncounted_block(size_t size) {
  void* const block = std::aligned_alloc(alignof(LiveItem), size);
  if (block == nullptr) throw std::bad_alloc();
  return new (block) LiveItem;
}

void release_block(void* data) {
  if (data == nullptr) return;
  LiveItem* const item = static_cast<LiveItem*>(data) - 1;
  if (item->ledger == nullptr) return std::free(item);
  item->ledger->delete_block(item, size_with_item(item->bytes));
}

// The context of a block is its data pointer (libtorch's raw_allocate demands it), so all else is
// in the header.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release_block, device};
    const auto counted = static_cast<int64_t>(bytes);
    const size_t size = size_with_item(counted);
    LedgerState* const ledger = current_ledger();
    LiveItem* const item = ledger != nullptr ? ledger->new_block(current_category(), counted, size)
                                             : new_uncounted_block(size);
    void* const data = item + 1;
    return {data, data, &release_block, device};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release_block; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

void install_counting_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    static CountingAllocator allocator;
    c10::SetCPUAllocator(&allocator, 100);
  });
}

}  // namespace smp::ledger
