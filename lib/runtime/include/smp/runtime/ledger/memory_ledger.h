#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/spec/plan.h"

// The MemoryLedger of a rank knows every byte the rank holds, by category: tensors report
// themselves through the counting allocator, everything else (communication segments, host buffers)
// is charged by hand. It keeps the peak with its breakdown and phase, and enforces the rank's
// memory limit.
//
// Each block also remembers what it is for: the phase in which it was asked for, or the words of an
// ItemScope. So the largest live items can be named at any time.
//
// Any thread may allocate and free; a block remembers its ledger and category, so a free on another
// thread, under another category or after the ledger's end is right. Which ledger and category an
// allocation goes to is a property of the thread (LedgerScope, CategoryScope). set_phase is for the
// one thread that runs the schedule.
namespace smp::runinfo {
class ProgressPost;
}

namespace smp::ledger {

using CategoryBytes = std::array<int64_t, kMemoryCategories>;

inline constexpr std::string_view kSavePhase = "save";  // after the last step

// Where a rank is: "step 7: backward, microbatch 2, layer 3". -1 leaves a part out.
struct Phase {
  const char* name = "setup";  // a literal
  int64_t step = -1;
  int64_t microbatch = -1;
  int64_t layer = -1;
};
std::string to_string(const Phase& phase);

// An allocation that the rank's limit refuses.
class OutOfMemory : public std::runtime_error {
 public:
  OutOfMemory(const std::string& where, const std::string& text)
      : std::runtime_error(text), phase(where) {}
  std::string phase;
};

// A moment of a ledger: all bytes, and their breakdown.
struct MemoryUse {
  int64_t bytes = 0;
  CategoryBytes by_category{};
  Phase phase;
};

// One allocation or charge that is live.
struct MemoryItem {
  MemoryCategory category = MemoryCategory::kWorkspace;
  int64_t bytes = 0;
  std::string what;  // "flat weights"; "step 7: forward, microbatch 2, layer 3"
};

inline constexpr size_t kItemsNamed = 10;  // in reports and errors

// Which of a rank's two memories a ledger is of.
enum class MemoryPool { kDevice, kHost };

class MemoryLedger {
 public:
  // limit_bytes 0 = none.
  MemoryLedger(int64_t rank, int64_t limit_bytes, MemoryPool pool = MemoryPool::kDevice);
  ~MemoryLedger();
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // Throws OutOfMemory when the live bytes would pass the limit; the ledger is unchanged then.
  void charge(MemoryCategory category, int64_t bytes);
  void release(MemoryCategory category, int64_t bytes);

  void set_phase(const Phase& phase);
  Phase phase() const;
  // From now on the phases are posted, too. `post` must outlive the last set_phase.
  void post_phases(runinfo::ProgressPost& post) { post_ = &post; }

  MemoryUse live() const;
  int64_t live_bytes() const;  // of live() the sum alone
  MemoryUse peak() const;      // the first moment at which most bytes were live
  std::vector<MemoryItem> largest(size_t count = kItemsNamed) const;  // live ones, largest first
  void reset_peak();  // from now on; the live bytes are the new peak

  // How often tensors' memory was asked of the system. What is freed is kept for later tensors, so
  // steps that allocate alike stop asking.
  int64_t system_allocations() const;

  int64_t rank() const;
  int64_t limit_bytes() const;

  struct State;  // outlives the ledger while blocks point at it
  State* state() const { return state_; }

 private:
  State* state_;
  runinfo::ProgressPost* post_ = nullptr;  // none: nobody looks
};

// Until its end, allocations of this thread go to `ledger`. Scopes nest.
class LedgerScope {
 public:
  explicit LedgerScope(MemoryLedger& ledger);
  ~LedgerScope();
  LedgerScope(const LedgerScope&) = delete;
  LedgerScope& operator=(const LedgerScope&) = delete;

 private:
  MemoryLedger::State* previous_;
};

// Until its end, allocations of this thread have this category. Without one: workspace.
class CategoryScope {
 public:
  explicit CategoryScope(MemoryCategory category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  MemoryCategory previous_;
};

// Until its end, allocations and charges of this thread are called `what`, a literal, instead of
// the phase they happen in: for what outlives its phase.
class ItemScope {
 public:
  explicit ItemScope(const char* what);
  ~ItemScope();
  ItemScope(const ItemScope&) = delete;
  ItemScope& operator=(const ItemScope&) = delete;

 private:
  const char* previous_;
};

// Bytes that no allocator sees, charged while this object lives.
class MemoryCharge {
 public:
  MemoryCharge();
  MemoryCharge(MemoryLedger& ledger, MemoryCategory category, int64_t bytes);
  // To the ledger that an allocation of this thread would go to, if there is one.
  MemoryCharge(MemoryCategory category, int64_t bytes);
  MemoryCharge(MemoryCharge&& other) noexcept;
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge();

 private:
  struct Entry;  // in its ledger's list of live items, so it stays where it is
  MemoryCharge(MemoryLedger::State* state, MemoryCategory category, int64_t bytes);

  std::unique_ptr<Entry> entry_;
};

// Makes every CPU tensor of this process report to the ledger of the thread that allocates it;
// once, before the first tensor. Later calls do nothing.
void install_counting_allocator();

// The ledger of threads without a LedgerScope (torch's own worker threads) in a process that is one
// rank; null = such allocations are not counted.
void set_process_ledger(MemoryLedger* ledger);

}  // namespace smp::ledger
