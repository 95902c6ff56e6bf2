#pragma once

#include "smp/plan/job_spec.h"
#include "smp/planner/layer_bytes.h"
#include "smp/planner/layout_choice.h"
#include "stage_terms.h"

namespace smp {

// Bytes of the host's memory that a rank pins for messages of GPU memory (docs/gpu.md): a buffer
// for each that is under way. Buffers are kept and used again by all kinds of messages, so this is
// what is under way at once. 0 on CPUs, and for other frameworks.
double message_buffers(const JobSpec& job, const LayoutChoice& choice, const LayerBytes& layers,
                       const StageHolds& holds);

}  // namespace smp
