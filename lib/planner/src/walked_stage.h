#pragma once

#include <cstdint>
#include <vector>

#include "activation_walk.h"
#include "smp/plan/layout.h"
#include "smp/plan/plan.h"
#include "smp/plan/schedule.h"

// What walk_activations() reads of a plan: in the engine to the byte, elsewhere from the sizes of a
// layer's terms. Pure; any thread.
namespace smp {

// One entry per model layer, as seen by tensor rank `tensor`.
std::vector<WalkedLayer> walked_layers(const Plan& plan, int64_t tensor);

// Those layers where a rank's stage has them: chunks, messages, what is recomputed.
WalkedStage walked_stage(const Plan& plan, const RankLayout& layout,
                         std::vector<WalkedLayer> layers, const ScheduleParameters& parameters);

}  // namespace smp
