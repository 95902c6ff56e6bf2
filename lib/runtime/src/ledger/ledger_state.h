#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "ledger/block_arena.h"
#include "smp/runtime/ledger/memory_use.h"

namespace smp::ledger {

struct LedgerState;

// A ledger's record of one allocation or charge, a node of its list of live items. It is in front
// of each block; its size is the alignment that vector code needs.
struct alignas(64) LiveItem {
  LiveItem* before = nullptr;
  LiveItem* behind = nullptr;
  LedgerState* ledger = nullptr;  // null: not counted
  int64_t bytes = 0;
  const char* what = nullptr;  // a literal: a phase's name, or an ItemScope's
  int32_t step = -1, microbatch = -1, layer = -1;
  MemoryCategory category = MemoryCategory::kWorkspace;
};
static_assert(sizeof(LiveItem) == 64);

// The state of a MemoryLedger. It lives as long as the ledger or any item that it counts; `owners`
// is their number.
struct LedgerState {
  LedgerState(int64_t of_rank, int64_t limit, MemoryPool of_pool);

  void charge(MemoryCategory category, int64_t bytes);  // throws OutOfMemory
  void release(MemoryCategory category, int64_t bytes);

  // A counted block of `size` bytes from the arena, its item in front: `size` is a multiple of
  // BlockArena::kAlignment and has room for it, `bytes` are what counts. Throws OutOfMemory, and
  // std::bad_alloc when the system has no more.
  LiveItem* new_block(MemoryCategory category, int64_t bytes, size_t size);
  void delete_block(LiveItem* block, size_t size);  // may delete this

  // The same for memory that is not from the arena.
  void enter(LiveItem& item, MemoryCategory category, int64_t bytes);  // throws OutOfMemory
  void leave(LiveItem& item);                                          // may delete this

  void drop_owner();  // may delete this

  const int64_t rank;
  const int64_t limit_bytes;
  const MemoryPool pool;

  std::mutex mutex;  // guards what follows
  int64_t owners = 1;
  Phase phase;
  MemoryUse live;
  MemoryUse peak;
  LiveItem items;  // the list's end
  BlockArena arena;

  // With the mutex held.
  std::vector<MemoryItem> largest(size_t count) const;

 private:
  // With the mutex held.
  void count(MemoryCategory category, int64_t bytes);
  void discount(MemoryCategory category, int64_t bytes);
  void link(LiveItem& item, MemoryCategory category, int64_t bytes);
  bool unlink(LiveItem& item);  // true: it was the last owner
};

// The ledger of this thread: its LedgerScope's, else the process ledger, else null.
LedgerState* current_ledger();
MemoryCategory current_category();

}  // namespace smp::ledger
