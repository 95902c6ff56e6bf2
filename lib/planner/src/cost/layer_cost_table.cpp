#include "cost/layer_cost_table.h"

#include <utility>

#include "cost/in_engine.h"
#include "smp/plan/model/operators.h"

namespace smp::cost {
namespace {

constexpr size_t kFirstSlots = 256;
// Layouts that share their programs come near each other in a search.
constexpr size_t kKnownPrograms = 64;

// Spreads neighbouring keys over the table (the finaliser of SplitMix64).
uint64_t scattered(const LayerKey& layer) {
  uint64_t key = layer.layout ^ layer.step * 0x9e3779b97f4a7c15U;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9U;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebU;
  return key ^ (key >> 31);
}

}  // namespace

const KindPrograms& ProgramTable::of(const JobSpec& job, const choice::LayoutChoice& choice,
                                     const LayerKinds& kinds) {
  const uint64_t key = program_key(choice);
  for (Known& known : known_) {
    if (known.key != key) continue;
    if (known.micro_batch == choice.micro_batch) return known.programs;
    // Our engine's programs are exact to the byte, which do not all grow with the samples.
    if (runs_in_engine(job) || model::is_list(job.model)) continue;
    for (KindProgram& kind : known.programs) {
      program::set_samples(kind.program, known.micro_batch, choice.micro_batch);
      kind.memory = program::memory_of(kind.program);
    }
    known.micro_batch = choice.micro_batch;
    return known.programs;
  }
  if (known_.size() < kKnownPrograms) known_.emplace_back();
  Known& made = known_[next_];
  next_ = (next_ + 1) % kKnownPrograms;
  made = {key, choice.micro_batch, kind_programs(job, choice, kinds)};
  return made.programs;
}

LayerCostTable::LayerCostTable(const JobSpec& job, std::shared_ptr<ProgramTable> programs)
    : job_(job), slots_(kFirstSlots), programs_(std::move(programs)) {
  if (programs_ == nullptr) programs_ = std::make_shared<ProgramTable>();
}

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
    costs_.push_back(layer_costs(job_, choice, kinds_, programs_->of(job_, choice, *kinds_)));
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
