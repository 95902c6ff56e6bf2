#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/runtime/ledger/memory_use.h"

// The MemoryLedger of a rank knows every byte the rank holds, by category: tensors report
// themselves through the counting allocator, everything else (communication segments, host buffers)
// is charged by hand. It keeps the peak with its breakdown and phase, and enforces the rank's
// memory limit.
//
// Each block also remembers its purpose: the phase in which it was allocated, or the words of an
// ItemScope. So the largest live items can be named at any time.
//
// Any thread may allocate and free. The thread's LedgerScope and CategoryScope decide the ledger
// and category of an allocation. A block remembers both, so it may be freed on another thread,
// under another category or after the ledger's end. set_phase is for the one thread that runs the
// schedule.
namespace smp::runinfo {
class ProgressPost;
}

namespace smp::ledger {

struct LedgerState;  // outlives its ledger while blocks refer to it

class MemoryLedger {
 public:
  // limit_bytes 0 = none.
  MemoryLedger(int64_t rank, int64_t limit_bytes, MemoryPool pool = MemoryPool::kDevice);
  ~MemoryLedger();
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // Throws OutOfMemory if the live bytes would exceed the limit; the ledger is then unchanged.
  void charge(MemoryCategory category, int64_t bytes);
  void release(MemoryCategory category, int64_t bytes);

  void set_phase(const Phase& phase);
  Phase phase() const;
  // Posts the phases from now on. `post` must outlive the last set_phase.
  void post_phases(runinfo::ProgressPost& post) { post_ = &post; }

  MemoryUse live() const;
  int64_t live_bytes() const;  // live().bytes
  MemoryUse peak() const;      // the first moment with the most live bytes
  std::vector<MemoryItem> largest(size_t count = kItemsNamed) const;  // live ones, largest first
  void reset_peak();  // the live bytes become the peak

  // The number of requests to the system for tensor memory. Freed memory is cached, so steps with
  // equal allocations stop asking.
  int64_t system_allocations() const;

  int64_t rank() const;
  int64_t limit_bytes() const;

  LedgerState* state() const { return state_; }

 private:
  LedgerState* state_;
  runinfo::ProgressPost* post_ = nullptr;  // none: nobody looks
};

// While it lives, allocations of this thread go to `ledger`. Scopes nest.
class LedgerScope {
 public:
  explicit LedgerScope(MemoryLedger& ledger);
  ~LedgerScope();
  LedgerScope(const LedgerScope&) = delete;
  LedgerScope& operator=(const LedgerScope&) = delete;

 private:
  LedgerState* previous_;
};

// While it lives, allocations of this thread have this category. The default is workspace.
class CategoryScope {
 public:
  explicit CategoryScope(MemoryCategory category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  MemoryCategory previous_;
};

// While it lives, allocations and charges of this thread are named `what`, a literal, instead of
// the current phase: for memory that outlives its phase.
class ItemScope {
 public:
  explicit ItemScope(const char* what);
  ~ItemScope();
  ItemScope(const ItemScope&) = delete;
  ItemScope& operator=(const ItemScope&) = delete;

 private:
  const char* previous_;
};

// Bytes that do not come from an allocator, charged while this object lives.
class MemoryCharge {
 public:
  MemoryCharge();
  MemoryCharge(MemoryLedger& ledger, MemoryCategory category, int64_t bytes);
  // Charges the current ledger of this thread, if there is one.
  MemoryCharge(MemoryCategory category, int64_t bytes);
  MemoryCharge(MemoryCharge&& other) noexcept;
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge();

 private:
  struct Entry;  // linked into its ledger's list of live items, so its address must not change
  MemoryCharge(LedgerState* state, MemoryCategory category, int64_t bytes);

  std::unique_ptr<Entry> entry_;
};

// Makes every CPU tensor of this process report to the ledger of the thread that allocates it. Call
// before the first tensor; further calls do nothing.
void install_counting_allocator();

// Sets the ledger of threads without a LedgerScope (torch's own worker threads), in a process that
// runs one rank. null = such allocations are not counted.
void set_process_ledger(MemoryLedger* ledger);

}  // namespace smp::ledger
