#include "smp/runtime/ledger/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "ledger/ledger_state.h"
#include "smp/plan/runinfo/progress_page.h"

namespace smp::ledger {
namespace {

thread_local LedgerState* thread_ledger = nullptr;
thread_local MemoryCategory thread_category = MemoryCategory::kWorkspace;
thread_local const char* thread_item = nullptr;
std::atomic<LedgerState*> process_ledger{nullptr};

size_t index_of(MemoryCategory category) { return static_cast<size_t>(category); }

// What makes a category smaller. Right whatever is set already.
std::string_view advice_for(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kWeights:
    case MemoryCategory::kGradients:
      return "raise parallel.tensor_parallel_degree or parallel.pipeline_parallel_degree";
    case MemoryCategory::kOptimizer:
      return "set parallel.shard_optimizer_state: true, or, if it is true already, raise "
             "parallel.tensor_parallel_degree or parallel.pipeline_parallel_degree";
    case MemoryCategory::kActivations:
    case MemoryCategory::kWorkspace:
      return "lower training.micro_batch, or raise parallel.tensor_parallel_degree";
    case MemoryCategory::kCommunication:
      return "lower training.micro_batch for smaller messages, or set unused parallel degrees to 1 "
             "for fewer groups of ranks";
    case MemoryCategory::kData: return "lower training.micro_batch";
  }
  return "";
}

// "; largest: 8000 bytes of optimizer (Adam momentum), ..."
std::string largest_items(const LedgerState& state) {
  std::string text;
  for (const MemoryItem& item : state.largest(kItemsNamed)) {
    text += fmt::format("{}{} bytes of {} ({})", text.empty() ? "; largest: " : ", ", item.bytes,
                        name_of(item.category), item.what);
  }
  return text;
}

std::string refusal(const LedgerState& state, MemoryCategory category, int64_t bytes) {
  std::string live;
  size_t largest = 0;
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    const int64_t held = state.live.by_category[i];
    if (held > state.live.by_category[largest]) largest = i;
    if (held == 0) continue;
    live += fmt::format("{}{} {}", live.empty() ? "" : ", ",
                        name_of(static_cast<MemoryCategory>(i)), held);
  }
  const bool on_host = state.pool == MemoryPool::kHost;
  std::string text = fmt::format(
      "rank {}: out of {}memory in {}: requested {} bytes ({}) with {} of {} in use ({})",
      state.rank, on_host ? "host " : "", to_string(state.phase), bytes, name_of(category),
      state.live.bytes, state.limit_bytes, live.empty() ? "nothing" : live);
  if (on_host) {
    return text +
           "; raise cluster.host_memory, which the processes of a host share, or offload less" +
           largest_items(state);
  }
  // After the last step no degree or batch matters any more.
  if (state.phase.name == kSavePhase) {
    return text + "; raise cluster.memory_per_process" + largest_items(state);
  }
  text += fmt::format("; to reduce {}: {}", name_of(category), advice_for(category));
  const auto most = static_cast<MemoryCategory>(largest);
  if (most != category && state.live.bytes > 0) {
    text +=
        fmt::format("; to reduce {}, the largest category: {}", name_of(most), advice_for(most));
  }
  return text + largest_items(state);
}

}  // namespace

std::string to_string(const Phase& phase) {
  std::string text;
  if (phase.step >= 0) text += fmt::format("step {}: ", phase.step);
  text += phase.name;
  if (phase.microbatch >= 0) text += fmt::format(", microbatch {}", phase.microbatch);
  if (phase.layer >= 0) text += fmt::format(", layer {}", phase.layer);
  return text;
}

LedgerState::LedgerState(int64_t of_rank, int64_t limit, MemoryPool of_pool)
    : rank(of_rank), limit_bytes(limit), pool(of_pool) {
  items.before = items.behind = &items;
}

void LedgerState::count(MemoryCategory category, int64_t bytes) {
  if (limit_bytes > 0 && bytes > limit_bytes - live.bytes) {
    throw OutOfMemory(to_string(phase), refusal(*this, category, bytes));
  }
  live.bytes += bytes;
  live.by_category[index_of(category)] += bytes;
  if (live.bytes > peak.bytes) {
    peak = live;
    peak.phase = phase;
  }
}

void LedgerState::discount(MemoryCategory category, int64_t bytes) {
  live.bytes -= bytes;
  live.by_category[index_of(category)] -= bytes;
}

void LedgerState::charge(MemoryCategory category, int64_t bytes) {
  const std::lock_guard lock(mutex);
  count(category, bytes);
}

void LedgerState::release(MemoryCategory category, int64_t bytes) {
  const std::lock_guard lock(mutex);
  discount(category, bytes);
}

void LedgerState::link(LiveItem& item, MemoryCategory category, int64_t bytes) {
  item.ledger = this;
  item.bytes = bytes;
  item.category = category;
  if (thread_item != nullptr) {
    item.what = thread_item;
  } else {
    item.what = phase.name;
    item.step = static_cast<int32_t>(phase.step);
    item.microbatch = static_cast<int32_t>(phase.microbatch);
    item.layer = static_cast<int32_t>(phase.layer);
  }
  item.before = items.before;
  item.behind = &items;
  item.before->behind = items.before = &item;
  ++owners;
}

bool LedgerState::unlink(LiveItem& item) {
  discount(item.category, item.bytes);
  item.before->behind = item.behind;
  item.behind->before = item.before;
  return --owners == 0;
}

LiveItem* LedgerState::new_block(MemoryCategory category, int64_t bytes, size_t size) {
  const std::lock_guard lock(mutex);
  count(category, bytes);
  void* const block = arena.allocate(size);
  if (block == nullptr) {
    discount(category, bytes);
    throw std::bad_alloc();
  }
  LiveItem* const item = new (block) LiveItem;
  link(*item, category, bytes);
  return item;
}

void LedgerState::delete_block(LiveItem* block, size_t size) {
  bool last = false;
  {
    const std::lock_guard lock(mutex);
    last = unlink(*block);
    arena.release(block, size);
  }
  if (last) delete this;
}

void LedgerState::enter(LiveItem& item, MemoryCategory category, int64_t bytes) {
  const std::lock_guard lock(mutex);
  count(category, bytes);
  link(item, category, bytes);
}

void LedgerState::leave(LiveItem& item) {
  bool last = false;
  {
    const std::lock_guard lock(mutex);
    last = unlink(item);
  }
  if (last) delete this;
}

void LedgerState::drop_owner() {
  bool last = false;
  {
    const std::lock_guard lock(mutex);
    last = --owners == 0;
  }
  if (last) delete this;
}

std::vector<MemoryItem> LedgerState::largest(size_t count) const {
  std::vector<const LiveItem*> all;
  for (const LiveItem* item = items.behind; item != &items; item = item->behind) {
    all.push_back(item);
  }
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(count, all.size()));
  std::partial_sort(all.begin(), end, all.end(),
                    [](const LiveItem* a, const LiveItem* b) { return a->bytes > b->bytes; });
  std::vector<MemoryItem> found;
  for (auto item = all.begin(); item != end; ++item) {
    const LiveItem& one = **item;
    found.push_back(
        {one.category, one.bytes, to_string(Phase{one.what, one.step, one.microbatch, one.layer})});
  }
  return found;
}

LedgerState* current_ledger() {
  return thread_ledger != nullptr ? thread_ledger : process_ledger.load(std::memory_order_relaxed);
}

MemoryCategory current_category() { return thread_category; }

MemoryLedger::MemoryLedger(int64_t rank, int64_t limit_bytes, MemoryPool pool)
    : state_(new LedgerState(rank, limit_bytes, pool)) {}

MemoryLedger::~MemoryLedger() {
  LedgerState* self = state_;
  process_ledger.compare_exchange_strong(self, nullptr);
  state_->drop_owner();
}

void MemoryLedger::charge(MemoryCategory category, int64_t bytes) {
  state_->charge(category, bytes);
}

void MemoryLedger::release(MemoryCategory category, int64_t bytes) {
  state_->release(category, bytes);
}

void MemoryLedger::set_phase(const Phase& phase) {
  if (post_ != nullptr) post_->enter(phase.name, phase.step, phase.microbatch, phase.layer);
  const std::lock_guard lock(state_->mutex);
  state_->phase = phase;
}

Phase MemoryLedger::phase() const {
  const std::lock_guard lock(state_->mutex);
  return state_->phase;
}

MemoryUse MemoryLedger::live() const {
  const std::lock_guard lock(state_->mutex);
  MemoryUse use = state_->live;
  use.phase = state_->phase;
  return use;
}

int64_t MemoryLedger::live_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->live.bytes;
}

MemoryUse MemoryLedger::peak() const {
  const std::lock_guard lock(state_->mutex);
  return state_->peak;
}

void MemoryLedger::reset_peak() {
  const std::lock_guard lock(state_->mutex);
  state_->peak = state_->live;
  state_->peak.phase = state_->phase;
}

std::vector<MemoryItem> MemoryLedger::largest(size_t count) const {
  const std::lock_guard lock(state_->mutex);
  return state_->largest(count);
}

int64_t MemoryLedger::system_allocations() const {
  const std::lock_guard lock(state_->mutex);
  return state_->arena.growths();
}

int64_t MemoryLedger::rank() const { return state_->rank; }
int64_t MemoryLedger::limit_bytes() const { return state_->limit_bytes; }

LedgerScope::LedgerScope(MemoryLedger& ledger)
    : previous_(std::exchange(thread_ledger, ledger.state())) {}
LedgerScope::~LedgerScope() { thread_ledger = previous_; }

CategoryScope::CategoryScope(MemoryCategory category)
    : previous_(std::exchange(thread_category, category)) {}
CategoryScope::~CategoryScope() { thread_category = previous_; }

ItemScope::ItemScope(const char* what) : previous_(std::exchange(thread_item, what)) {}
ItemScope::~ItemScope() { thread_item = previous_; }

struct MemoryCharge::Entry {
  ~Entry() {
    if (item.ledger != nullptr) item.ledger->leave(item);
  }
  LiveItem item;
};

MemoryCharge::MemoryCharge() = default;

MemoryCharge::MemoryCharge(MemoryLedger& ledger, MemoryCategory category, int64_t bytes)
    : MemoryCharge(ledger.state(), category, bytes) {}

MemoryCharge::MemoryCharge(MemoryCategory category, int64_t bytes)
    : MemoryCharge(current_ledger(), category, bytes) {}

MemoryCharge::MemoryCharge(LedgerState* state, MemoryCategory category, int64_t bytes) {
  if (state == nullptr) return;
  entry_ = std::make_unique<Entry>();
  state->enter(entry_->item, category, bytes);
}

MemoryCharge::MemoryCharge(MemoryCharge&& other) noexcept = default;
MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept = default;
MemoryCharge::~MemoryCharge() = default;

void set_process_ledger(MemoryLedger* ledger) {
  process_ledger = ledger != nullptr ? ledger->state() : nullptr;
}

}  // namespace smp::ledger
