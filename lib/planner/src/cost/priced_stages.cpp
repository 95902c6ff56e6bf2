#include "cost/priced_stages.h"

#include <algorithm>
#include <utility>

namespace smp::cost {
namespace {

// Whether one has no more layers of any kind than the other.
bool is_within(const StageHolds& one, const StageHolds& other) {
  for (size_t kind = 0; kind < one.of_kind.size(); ++kind) {
    if (one.of_kind[kind] > other.of_kind[kind]) return false;
  }
  return one.frozen_chunks <= other.frozen_chunks;
}

std::vector<PricedStage> own_stages(const LayerKinds& kinds, const choice::LayoutChoice& choice) {
  std::vector<PricedStage> stages;
  int64_t index = 0;
  for (StageHolds& holds : all_stage_holds(kinds, choice)) {
    const bool is_end = index == 0 || index + 1 == choice.pipeline;
    const bool is_covered =
        !is_end && std::any_of(stages.begin() + 1, stages.end(), [&](const PricedStage& other) {
          return is_within(holds, other.holds);
        });
    if (!is_covered) stages.push_back({index, std::move(holds)});
    ++index;
  }
  return stages;
}

}  // namespace

bool PricedStages::are_known(const choice::LayoutChoice& choice) const {
  return !stages_.empty() && choice.pipeline == known_.pipeline &&
         choice.virtual_stages == known_.virtual_stages && choice.schedule == known_.schedule &&
         choice.first_stage_layers == known_.first_stage_layers &&
         choice.last_stage_layers == known_.last_stage_layers &&
         choice.partition == known_.partition;
}

const std::vector<PricedStage>& PricedStages::of(const LayerKinds& kinds,
                                                 const choice::LayoutChoice& choice) {
  if (are_known(choice)) return stages_;
  known_ = choice;
  if (kinds.differ_by_stage()) {
    stages_ = own_stages(kinds, choice);
    return stages_;
  }
  const int64_t last = choice.pipeline - 1;
  stages_.clear();
  stages_.push_back({0, stage_holds(kinds, choice, 0)});
  if (last > 1) stages_.push_back({1, stage_holds(kinds, choice, 1)});
  if (last > 0) stages_.push_back({last, stage_holds(kinds, choice, last)});
  return stages_;
}

}  // namespace smp::cost
