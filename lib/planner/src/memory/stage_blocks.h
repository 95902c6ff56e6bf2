#pragma once

#include "cost/stage_holds.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_bytes.h"

namespace smp::memory {

// Of a stage with so many blocks, 0 to 1.
double share_that_recomputes(const choice::LayoutChoice& choice, double blocks);

// Outputs of a stage's chunks, over all its live microbatches, that were sent and are gone though
// their blocks count them as kept: by those that recompute nothing, or by checkpoints if all do.
double freed_outputs(const JobSpec& job, const choice::LayoutChoice& choice, bool head,
                     double live);

// Whether a call of a block has no backward, as frozen blocks have none behind a frozen embedding.
inline bool is_forward_alone(const cost::CallBytes& call) { return call.saved == 0; }

// What a call that is recomputed so keeps.
double kept_by_call(const cost::CallBytes& call, Recompute recompute);

// What a stage's blocks keep of one microbatch, by how they are recomputed.
struct BlocksKept {
  double kept = 0;         // without recomputing
  double checkpoints = 0;  // of recomputed blocks
  double again = 0;        // made again in one block's backward
  double workspace = 0;    // of the fullest block's backward
  double forward = 0;      // most of a block's forward above what it keeps

  double all() const { return kept + checkpoints; }
};
BlocksKept blocks_kept(const choice::LayoutChoice& choice, const cost::LayerBytes& layers,
                       const cost::StageHolds& holds);

// Where kept tensors are offloaded: of those of a stage with `blocks` blocks, what stays on the
// accelerator, being fetched ahead, and one layer's that are on their way out.
double offload_window(const JobSpec& job, const choice::LayoutChoice& choice,
                      const cost::LayerBytes& layers, double blocks);

}  // namespace smp::memory
