#pragma once

#include "smp/plan/job_spec.h"
#include "smp/planner/layer_bytes.h"
#include "smp/planner/layout_choice.h"

namespace smp {

// Whether the job's layers are those of our engine on CPUs, whose bytes lib/plan knows exactly
// (memory_of()).
bool runs_in_engine(const JobSpec& job);

// The calls of LayerBytes, from memory_of().
void add_engine_bytes(LayerBytes& layers, const JobSpec& job, const LayoutChoice& choice);

}  // namespace smp
