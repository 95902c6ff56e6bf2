#pragma once

#include "cost/layer_program.h"
#include "smp/planner/cost/call_bytes.h"

namespace smp::cost {

// The bytes of a layer's call, from the life of its program's values. What adapters keep beside
// frozen weights, and layers that no gradient passes through, is frozen_layers.h's. Pure.
CallBytes call_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                     const model::LayerSpec& layer, const program::LayerProgram& program,
                     bool is_frozen);

}  // namespace smp::cost
