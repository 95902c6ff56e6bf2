#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cost/layer_costs.h"

namespace smp::cost {

// Programs of a job's layers, for all layouts that have them but for the micro batch. Jobs that
// differ in collectives alone may share one. One thread.
class ProgramTable {
 public:
  const KindPrograms& of(const JobSpec& job, const choice::LayoutChoice& choice,
                         const LayerKinds& kinds);

 private:
  struct Known {
    uint64_t key = 0;
    int64_t micro_batch = 0;
    KindPrograms programs;
  };
  std::vector<Known> known_;  // the last ones that were made
  size_t next_ = 0;           // of them that is made anew
};

// LayerCosts, of all layouts that share a layer_key, by it in one flat table with open addressing:
// a search asks a million times a second and computes a few hundred. References stay valid. One
// thread.
class LayerCostTable {
 public:
  explicit LayerCostTable(const JobSpec& job, std::shared_ptr<ProgramTable> programs = nullptr);
  const LayerCosts& of(const choice::LayoutChoice& choice);
  size_t size() const { return costs_.size(); }
  const std::shared_ptr<ProgramTable>& programs() const { return programs_; }

 private:
  struct Slot {
    LayerKey key;
    const LayerCosts* costs = nullptr;  // null = free
  };
  Slot& slot_of(const LayerKey& key);
  void grow();

  const JobSpec& job_;
  std::shared_ptr<const LayerKinds> kinds_;  // from the first one on that is computed
  std::vector<Slot> slots_;                  // a power of two of them
  std::deque<LayerCosts> costs_;
  std::shared_ptr<ProgramTable> programs_;
  Slot last_;
};

}  // namespace smp::cost
