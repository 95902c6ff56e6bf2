#include "cost/layer_cost_table.h"

namespace smp::cost {
namespace {

constexpr size_t kFirstSlots = 256;

// Spreads neighbouring keys over the table (the finaliser of SplitMix64).
uint64_t scattered(const LayerKey& layer) {
  uint64_t key = layer.layout ^ layer.step * 0x9e3779b97f4a7c15U;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9U;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebU;
  return key ^ (key >> 31);
}

}  // namespace

LayerCostTable::LayerCostTable(const JobSpec& job) : job_(job), slots_(kFirstSlots) {}

LayerCostTable::Slot& LayerCostTable::slot_of(const LayerKey& key) {
  const size_t mask = slots_.size() - 1;
  size_t at = scattered(key) & mask;
  while (slots_[at].costs != nullptr && slots_[at].key != key) at = (at + 1) & mask;
  return slots_[at];
}

void LayerCostTable::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.costs != nullptr) slot_of(slot.key) = slot;
  }
}

const LayerCosts& LayerCostTable::of(const choice::LayoutChoice& choice) {
  const LayerKey key = layer_key(job_, choice);
  if (last_.costs != nullptr && last_.key == key) return *last_.costs;
  Slot* slot = &slot_of(key);
  if (slot->costs == nullptr) {
    if (kinds_ == nullptr) kinds_ = std::make_shared<LayerKinds>(job_);
    costs_.push_back({layer_bytes(job_, choice, kinds_), layer_seconds(job_, choice, kinds_)});
    if (2 * costs_.size() > slots_.size()) {
      grow();
      slot = &slot_of(key);
    }
    *slot = {key, &costs_.back()};
  }
  last_ = *slot;
  return *last_.costs;
}

}  // namespace smp::cost
