#include "smp/runtime/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "ledger_state.h"

namespace smp {
namespace {

thread_local MemoryLedger::State* thread_ledger = nullptr;
thread_local MemoryCategory thread_category = MemoryCategory::kWorkspace;
std::atomic<MemoryLedger::State*> process_ledger{nullptr};

size_t index_of(MemoryCategory category) { return static_cast<size_t>(category); }

// What makes a category smaller. Right whatever is set already.
std::string_view advice_for(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kWeights:
    case MemoryCategory::kGradients:
      return "raise parallel.tensor_parallel_degree or parallel.pipeline_parallel_degree";
    case MemoryCategory::kOptimizer:
      return "set parallel.shard_optimizer_state: true unless it is set, or raise "
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

std::string refusal(const MemoryLedger::State& state, MemoryCategory category, int64_t bytes) {
  std::string live;
  size_t largest = 0;
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    const int64_t held = state.live.by_category[i];
    if (held > state.live.by_category[largest]) largest = i;
    if (held == 0) continue;
    live += fmt::format("{}{} {}", live.empty() ? "" : ", ",
                        name_of(static_cast<MemoryCategory>(i)), held);
  }
  std::string text = fmt::format(
      "rank {}: out of memory in {}: asked for {} bytes ({}) while {} of {} are live ({})",
      state.rank, to_string(state.phase), bytes, name_of(category), state.live.bytes,
      state.limit_bytes, live.empty() ? "nothing" : live);
  // After the last step no degree or batch matters any more.
  if (state.phase.name == kSavePhase) return text + "; raise cluster.memory_per_process";
  text += fmt::format("; for less {}: {}", name_of(category), advice_for(category));
  const auto most = static_cast<MemoryCategory>(largest);
  if (most == category || state.live.bytes == 0) return text;
  return text + fmt::format("; most is {}: {}", name_of(most), advice_for(most));
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

void MemoryLedger::State::charge(MemoryCategory category, int64_t bytes) {
  const std::lock_guard lock(mutex);
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

void MemoryLedger::State::release(MemoryCategory category, int64_t bytes) {
  const std::lock_guard lock(mutex);
  live.bytes -= bytes;
  live.by_category[index_of(category)] -= bytes;
}

void* MemoryLedger::State::take(size_t bytes) {
  const std::lock_guard lock(mutex);
  return arena.allocate(bytes);
}

void MemoryLedger::State::give_back(void* block, size_t bytes) {
  const std::lock_guard lock(mutex);
  arena.release(block, bytes);
}

void MemoryLedger::State::add_owner() {
  const std::lock_guard lock(mutex);
  ++owners;
}

void MemoryLedger::State::drop_owner() {
  int64_t left = 0;
  {
    const std::lock_guard lock(mutex);
    left = --owners;
  }
  if (left == 0) delete this;
}

MemoryLedger::State* current_ledger() {
  return thread_ledger != nullptr ? thread_ledger : process_ledger.load(std::memory_order_relaxed);
}

MemoryCategory current_category() { return thread_category; }

MemoryLedger::MemoryLedger(int64_t rank, int64_t limit_bytes)
    : state_(new State(rank, limit_bytes)) {}

MemoryLedger::~MemoryLedger() {
  State* self = state_;
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

MemoryUse MemoryLedger::peak() const {
  const std::lock_guard lock(state_->mutex);
  return state_->peak;
}

void MemoryLedger::reset_peak() {
  const std::lock_guard lock(state_->mutex);
  state_->peak = state_->live;
  state_->peak.phase = state_->phase;
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

MemoryCharge::MemoryCharge(MemoryLedger& ledger, MemoryCategory category, int64_t bytes)
    : MemoryCharge(ledger.state(), category, bytes) {}

MemoryCharge::MemoryCharge(MemoryCategory category, int64_t bytes)
    : MemoryCharge(current_ledger(), category, bytes) {}

MemoryCharge::MemoryCharge(MemoryLedger::State* state, MemoryCategory category, int64_t bytes)
    : category_(category), bytes_(bytes) {
  if (state == nullptr) return;
  state->charge(category, bytes);
  state_ = state;
  state_->add_owner();
}

MemoryCharge::MemoryCharge(MemoryCharge&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)),
      category_(other.category_),
      bytes_(other.bytes_) {}

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(category_, other.category_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryCharge::~MemoryCharge() {
  if (state_ == nullptr) return;
  state_->release(category_, bytes_);
  state_->drop_owner();
}

void set_process_ledger(MemoryLedger* ledger) {
  process_ledger = ledger != nullptr ? ledger->state() : nullptr;
}

}  // namespace smp
