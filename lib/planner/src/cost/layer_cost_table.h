#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cost/layer_costs.h"

namespace smp::cost {

// LayerCosts, of all layouts that share a layer_key, by it in one flat table with open addressing:
// a search asks a million times a second and computes a few hundred. References stay valid. One
// thread.
class LayerCostTable {
 public:
  explicit LayerCostTable(const JobSpec& job);
  const LayerCosts& of(const choice::LayoutChoice& choice);
  size_t size() const { return costs_.size(); }

 private:
  struct Slot {
    LayerKey key;
    const LayerCosts* costs = nullptr;  // null = free
  };
  Slot& slot_of(const LayerKey& key);
  void grow();
  const KindPrograms& programs_of(const choice::LayoutChoice& choice);

  // Programs of the layers, for all layouts that have them but for the micro batch.
  struct KnownPrograms {
    uint64_t key = 0;
    int64_t micro_batch = 0;
    KindPrograms programs;  // empty: free
  };

  const JobSpec& job_;
  std::shared_ptr<const LayerKinds> kinds_;  // from the first one on that is computed
  std::vector<Slot> slots_;                  // a power of two of them
  std::deque<LayerCosts> costs_;
  std::vector<KnownPrograms> programs_;  // the last ones that were made
  size_t next_ = 0;                      // of them that is made anew
  Slot last_;
};

}  // namespace smp::cost
