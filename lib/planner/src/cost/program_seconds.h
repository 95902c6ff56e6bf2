#pragma once

#include "cost/layer_program.h"
#include "smp/planner/cost/layer_seconds.h"

namespace smp::cost {

// The seconds of a layer's call: the sum over the operations of its program. Pure; any thread.
CallSeconds call_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                         const model::LayerSpec& layer, const program::LayerProgram& program,
                         bool is_frozen);

}  // namespace smp::cost
