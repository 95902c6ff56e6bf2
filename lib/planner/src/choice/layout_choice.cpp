#include "smp/planner/choice/layout_choice.h"

namespace smp::choice {

bool is_spread(std::string_view placement) {
  return placement == "spread" || placement == "TPD" || placement == "PDT";
}

int64_t stage_layers(const LayoutChoice& choice, int64_t layers, int64_t stage) {
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
