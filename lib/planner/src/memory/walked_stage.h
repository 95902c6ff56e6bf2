#pragma once

#include <cstdint>
#include <vector>

#include "cost/activation_walk.h"
#include "smp/plan/layout/stage_layers.h"
#include "smp/plan/schedule/schedule_parameters.h"
#include "smp/plan/spec/plan.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_bytes.h"

// What walk_activations() reads of a plan: in the engine to the byte, elsewhere from the sizes of a
// layer's terms. Pure; any thread.
namespace smp::memory {

// A plan, and the sizes of its layers.
struct SizedPlan {
  const Plan& plan;
  choice::LayoutChoice choice;  // choice_of(plan)
  cost::LayerBytes bytes;       // layer_bytes() of it
};

// A rank's place, and what its stage holds.
struct WalkedRank {
  int64_t stage = 0;
  int64_t tensor = 0;
  const layout::StageLayers& held;
};

// One entry per model layer, as seen by tensor rank `tensor`.
std::vector<cost::WalkedLayer> walked_layers(const SizedPlan& sized, int64_t tensor);

// Those layers where a rank's stage has them: chunks, messages, what is recomputed.
cost::WalkedStage walked_stage(const SizedPlan& sized, const WalkedRank& rank,
                               std::vector<cost::WalkedLayer> layers,
                               const schedule::ScheduleParameters& parameters);

// Of the first stage, what it receives of a tied embedding's gradient; of others 0.
int64_t tied_bytes(const Plan& plan, int64_t stage, int64_t tensor);

}  // namespace smp::memory
