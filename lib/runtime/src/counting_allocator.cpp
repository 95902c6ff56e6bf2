#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <new>

#include "ledger_state.h"
#include "smp/runtime/memory_ledger.h"

namespace smp {
namespace {

// Lies in front of each block, and as long as the alignment that vector code wants.
struct alignas(64) BlockHeader {
  MemoryLedger::State* ledger = nullptr;  // null: not counted
  MemoryCategory category = MemoryCategory::kWorkspace;
  int64_t bytes = 0;
};
static_assert(sizeof(BlockHeader) == 64);

// aligned_alloc and the arena want multiples of the alignment.
size_t size_with_header(int64_t bytes) {
  return (static_cast<size_t>(bytes) + 63) / 64 * 64 + sizeof(BlockHeader);
}

void release_block(void* data) {
  if (data == nullptr) return;
  auto* header = static_cast<BlockHeader*>(data) - 1;
  MemoryLedger::State* const ledger = header->ledger;
  if (ledger == nullptr) return std::free(header);
  const int64_t bytes = header->bytes;
  ledger->release(header->category, bytes);
  ledger->give_back(header, size_with_header(bytes));
  ledger->drop_owner();
}

// The context of a block is its data pointer (libtorch's raw_allocate demands it), so all else is
// in the header.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release_block, device};
    MemoryLedger::State* ledger = current_ledger();
    const MemoryCategory category = current_category();
    if (ledger != nullptr) ledger->charge(category, static_cast<int64_t>(bytes));
    const size_t padded = size_with_header(static_cast<int64_t>(bytes));
    void* block = ledger != nullptr ? ledger->take(padded) : std::aligned_alloc(64, padded);
    if (block == nullptr) {
      if (ledger != nullptr) ledger->release(category, static_cast<int64_t>(bytes));
      throw std::bad_alloc();
    }
    auto* header = new (block) BlockHeader{ledger, category, static_cast<int64_t>(bytes)};
    if (ledger != nullptr) ledger->add_owner();
    void* data = header + 1;
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

}  // namespace smp
