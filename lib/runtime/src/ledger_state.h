#pragma once

#include <mutex>

#include "block_arena.h"
#include "smp/runtime/memory_ledger.h"

namespace smp {

// What a MemoryLedger points at. It lives as long as the ledger or any block or charge that it
// counts: `owners` is 1 for the ledger and 1 for each of those.
struct MemoryLedger::State {
  State(int64_t of_rank, int64_t limit) : rank(of_rank), limit_bytes(limit) {}

  void charge(MemoryCategory category, int64_t bytes);  // throws OutOfMemory
  void release(MemoryCategory category, int64_t bytes);
  void add_owner();
  void drop_owner();  // may delete this

  // Memory for one block, from the arena. `bytes`: a multiple of BlockArena::kAlignment.
  void* take(size_t bytes);  // nullptr when the system has no more
  void give_back(void* block, size_t bytes);

  const int64_t rank;
  const int64_t limit_bytes;

  std::mutex mutex;  // guards what follows
  int64_t owners = 1;
  Phase phase;
  MemoryUse live;
  MemoryUse peak;
  BlockArena arena;
};

// Of this thread: its LedgerScope's, else the process ledger's, else null.
MemoryLedger::State* current_ledger();
MemoryCategory current_category();

}  // namespace smp
