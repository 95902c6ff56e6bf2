#pragma once

#include "smp/plan/job_spec.h"
#include "smp/planner/layer_bytes.h"
#include "smp/planner/layout_choice.h"
#include "stage_terms.h"

namespace smp {

// Bytes of the host's memory that a rank's messages of GPU memory take (docs/gpu.md): its part of
// the groups' shared memory, and a pinned buffer for each message that is under way with others of
// its kind. Buffers are kept and used again by all kinds, so this is what is under way at once. 0
// on CPUs, and for other frameworks.
double message_buffers(const JobSpec& job, const LayoutChoice& choice, const LayerBytes& layers,
                       const StageHolds& holds);

}  // namespace smp
