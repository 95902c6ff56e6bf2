#include "ledger/block_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "smp/plan/base/check.h"

namespace smp::ledger {
namespace {

constexpr size_t kReservedBytes = size_t{16} << 30;  // of addresses, at a time
constexpr size_t kGrowthBytes = size_t{2} << 20;     // a huge page

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

BlockArena::~BlockArena() {
  for (const Range& range : ranges_) {
    ::munmap(range.begin, static_cast<size_t>(range.reserved - range.begin));
  }
}

void* BlockArena::allocate(size_t bytes) {
  SMP_CHECK(bytes > 0 && bytes % kAlignment == 0);
  auto best = free_by_size_.lower_bound({bytes, nullptr});
  if (best == free_by_size_.end()) {
    if (!grow(bytes)) return nullptr;
    best = free_by_size_.lower_bound({bytes, nullptr});
  }
  const auto [size, begin] = *best;
  remove_free(free_.find(begin));
  if (size > bytes) add_free(begin + bytes, size - bytes);
  return begin;
}

void BlockArena::release(void* block, size_t bytes) {
  auto* begin = static_cast<char*>(block);
  const auto after = free_.lower_bound(begin);
  if (after != free_.end() && after->first == begin + bytes) {
    bytes += after->second;
    remove_free(after);
  }
  const auto behind = free_.lower_bound(begin);
  if (behind != free_.begin()) {
    const auto before = std::prev(behind);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      remove_free(before);
    }
  }
  add_free(begin, bytes);
}

// Enough for one block of `bytes` at the end of the last range, what is free there included.
bool BlockArena::grow(size_t bytes) {
  size_t missing = bytes;
  if (!ranges_.empty()) {
    const auto behind = free_.lower_bound(ranges_.back().end);
    if (behind != free_.begin()) {
      const auto [begin, size] = *std::prev(behind);
      if (begin + size == ranges_.back().end) missing -= size;
    }
  }
  const size_t step = rounded_up(missing, kGrowthBytes);
  const bool fits =
      !ranges_.empty() && static_cast<size_t>(ranges_.back().reserved - ranges_.back().end) >= step;
  if (!fits) {
    const size_t reserved = rounded_up(std::max(bytes, kReservedBytes), kGrowthBytes);
    void* addresses =
        ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) return false;
    auto* begin = static_cast<char*>(addresses);
    ranges_.push_back({begin, begin, begin + reserved});
  }
  Range& range = ranges_.back();
  const size_t size = fits ? step : rounded_up(bytes, kGrowthBytes);
  if (::mprotect(range.end, size, PROT_READ | PROT_WRITE) != 0) return false;
  ++growths_;
  held_bytes_ += static_cast<int64_t>(size);
  char* const begin = range.end;
  range.end += size;
  release(begin, size);
  return true;
}

void BlockArena::add_free(char* begin, size_t bytes) {
  free_.emplace(begin, bytes);
  free_by_size_.emplace(bytes, begin);
}

void BlockArena::remove_free(std::map<char*, size_t>::iterator block) {
  free_by_size_.erase({block->second, block->first});
  free_.erase(block);
}

}  // namespace smp::ledger
