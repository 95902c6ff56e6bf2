#pragma once

#include "memory/stage_terms.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_bytes.h"

namespace smp::memory {

// Bytes of the host's memory that a rank pins for messages of GPU memory (docs/gpu.md): a buffer
// for each that is under way. Buffers are kept and used again by all kinds of messages, so this is
// what is under way at once. 0 on CPUs, and for other frameworks.
double message_buffers(const JobSpec& job, const choice::LayoutChoice& choice,
                       const cost::LayerBytes& layers, const cost::StageHolds& holds);

}  // namespace smp::memory
