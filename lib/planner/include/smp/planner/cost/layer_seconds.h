#pragma once

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

namespace smp::cost {

// Seconds of one call (one microbatch) of a kind of layer on one rank, forward; and what its
// backward takes. Messages are those inside the call: of tensor, context and expert parallelism.
struct CallSeconds {
  double matmul_forward = 0, matmul_backward = 0;
  double weights_share = 0.5;                      // of matmul_backward: gradients of weights
  double memory_forward = 0, memory_backward = 0;  // memory-bound kernels, draws of dropout
  double launch_forward = 0, launch_backward = 0;  // beyond what the kernels take
  double recompute = 0;                            // in the backward, everything included
  double tensor_forward = 0, tensor_backward = 0;
  double context_forward = 0, context_backward = 0;
  double expert_forward = 0, expert_backward = 0;

  double forward() const {
    return matmul_forward + memory_forward + launch_forward + tensor_forward + context_forward +
           expert_forward;
  }
  double backward() const {
    return matmul_backward + memory_backward + launch_backward + recompute + tensor_backward +
           context_backward + expert_backward;
  }
};

// Of each kind of layer of a job. Depends on what layer_key() holds. Pure; any thread.
struct LayerSeconds {
  CallSeconds block;
  CallSeconds moe_block;
  CallSeconds cross_block;
  CallSeconds embedding;
  CallSeconds head;
  // Blocks that train nothing.
  CallSeconds frozen_block;
  CallSeconds frozen_moe_block;
  CallSeconds frozen_cross_block;
};
LayerSeconds layer_seconds(const JobSpec& job, const choice::LayoutChoice& choice);

}  // namespace smp::cost
