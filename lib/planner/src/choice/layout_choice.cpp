#include "smp/planner/choice/layout_choice.h"

#include <algorithm>
#include <iterator>

#include "smp/plan/base/errors.h"

namespace smp::choice {
namespace {

// In the order of the enumerators.
constexpr std::string_view kStrategies[] = {"cluster", "spread", "DPT", "DTP",
                                            "PDT",     "PTD",    "TDP", "TPD"};

// Of a partition in chunks, those of one stage.
int64_t listed_blocks(const LayoutChoice& choice, int64_t stage) {
  const std::vector<int64_t>& blocks = choice.partition.blocks();
  if (static_cast<int64_t>(blocks.size()) == choice.pipeline) {
    return blocks[static_cast<size_t>(stage)];
  }
  const schedule::ScheduleShape shape = shape_of(choice);
  int64_t sum = 0;
  for (size_t position = 0; position < blocks.size(); ++position) {
    const auto at = static_cast<int64_t>(position);
    if (schedule::place_of_chunk(shape, at).stage == stage) sum += blocks[position];
  }
  return sum;
}

}  // namespace

std::string_view name_of(PlacementStrategy strategy) {
  return kStrategies[static_cast<size_t>(strategy)];
}

PlacementStrategy placement_strategy_of(std::string_view name) {
  const auto* const found = std::find(std::begin(kStrategies), std::end(kStrategies), name);
  if (found == std::end(kStrategies)) {
    throw ConfigError("placement_strategy '" + std::string(name) +
                      "' is not 'cluster', 'spread' or a permutation of the letters D, P and T");
  }
  return static_cast<PlacementStrategy>(found - std::begin(kStrategies));
}

bool is_spread(PlacementStrategy strategy) {
  return strategy == PlacementStrategy::kSpread || strategy == PlacementStrategy::kTPD ||
         strategy == PlacementStrategy::kPDT;
}

schedule::ScheduleShape shape_of(const LayoutChoice& choice) {
  schedule::ScheduleShape shape;
  shape.kind = choice.schedule;
  shape.stages = choice.pipeline;
  shape.virtual_stages = choice.virtual_stages;
  shape.microbatches = choice.microbatches;
  shape.active_microbatches = choice.active_microbatches;
  return shape;
}

int64_t stage_layers(const LayoutChoice& choice, int64_t layers, int64_t stage) {
  if (!choice.partition.empty()) return listed_blocks(choice, stage);
  const int64_t stages = choice.pipeline;
  const int64_t first = choice.first_stage_layers;
  const int64_t last = stages > 1 ? choice.last_stage_layers : 0;
  if (first > 0 && stage == 0) return first;
  if (last > 0 && stage + 1 == stages) return last;
  const int64_t others = stages - (first > 0) - (last > 0);
  if (others <= 0) return layers;
  const int64_t shared = layers - first - last;
  const int64_t index = stage - (first > 0);
  return shared / others + (index < shared % others ? 1 : 0);
}

}  // namespace smp::choice
