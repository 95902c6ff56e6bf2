#pragma once

#include "smp/plan/model/layers.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

namespace smp::cost {

// Bytes of `block` and a microbatch that asynchronous messages of tensor parallelism hold beside
// what the block keeps. PyTorch's allocator gives a tensor that another stream read back only when
// that stream is done: while the processor launches ahead of the accelerator, the whole tensors of
// earlier blocks, `whole` bytes each, are still held. A block that waits for its launches holds
// none. 0 in frameworks without such messages.
double held_by_messages(const JobSpec& job, const choice::LayoutChoice& choice,
                        const model::LayerSpec& block, double whole);

}  // namespace smp::cost
