#pragma once

#include <cstdint>
#include <vector>

#include "cost/stage_holds.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_kinds.h"

namespace smp::cost {

struct PricedStage {
  int64_t index = 0;
  StageHolds holds;
};

// The stages of a layout that a closed form prices, in their order: the first, the last, and those
// between that may be the fullest or the slowest. Without differ_by_stage() that is the second.
// Else it is each that holds more layers of some kind than every one before it: a later stage has
// no more microbatches in flight. Made again where blocks are dealt otherwise than for the layout
// before. One thread.
class PricedStages {
 public:
  // They are valid until the next call.
  const std::vector<PricedStage>& of(const LayerKinds& kinds, const choice::LayoutChoice& choice);

 private:
  bool are_known(const choice::LayoutChoice& choice) const;

  choice::LayoutChoice known_;
  std::vector<PricedStage> stages_;
};

}  // namespace smp::cost
