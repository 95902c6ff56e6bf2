#pragma once

#include "layer_parameters.h"
#include "smp/plan/job_spec.h"
#include "smp/planner/layer_bytes.h"
#include "smp/planner/layout_choice.h"

namespace smp {

// What a stage's blocks keep of one microbatch, by how they are recomputed.
struct BlocksKept {
  double kept = 0;         // without recomputing
  double checkpoints = 0;  // of recomputed blocks
  double again = 0;        // made again in one block's backward
  double workspace = 0;    // of the fullest block's backward
  double forward = 0;      // most of a block's forward above what it keeps

  double all() const { return kept + checkpoints; }
};
BlocksKept blocks_kept(const LayoutChoice& choice, const LayerBytes& layers,
                       const StageBlocks& count);

// Where kept tensors are offloaded: of those of a stage with `blocks` blocks, what stays on the
// accelerator, being fetched ahead, and one layer's that are on their way out.
double offload_window(const JobSpec& job, const LayoutChoice& choice, const LayerBytes& layers,
                      double blocks);

}  // namespace smp
