#pragma once

#include "smp/plan/model/layers.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/call_bytes.h"

namespace smp::cost {

// One call of a layer that has a program, from memory_of().
CallBytes engine_call_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                            const model::LayerSpec& layer);

}  // namespace smp::cost
