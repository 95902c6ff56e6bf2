#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/cost/layer_seconds.h"

namespace smp::cost {

// What the calls of a job's layers cost, for all layouts that share a layer_key.
struct LayerCosts {
  LayerBytes bytes;
  LayerSeconds seconds;
};

// LayerCosts by layer_key in one flat table with open addressing: a search asks a million times a
// second and computes a few hundred. References stay valid. One thread.
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

  const JobSpec& job_;
  std::shared_ptr<const LayerKinds> kinds_;  // from the first one on that is computed
  std::vector<Slot> slots_;                  // a power of two of them
  std::deque<LayerCosts> costs_;
  Slot last_;
};

}  // namespace smp::cost
