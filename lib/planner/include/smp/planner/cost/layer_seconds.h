#pragma once

#include <memory>
#include <vector>

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_kinds.h"

namespace smp::program {
struct LayerProgram;
}

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

// One call of a layer; `is_frozen`: it is one of the first blocks, which training.frozen names.
CallSeconds call_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                         const model::LayerSpec& layer, bool is_frozen);
// The same as the sum over the operations of the layer's program.
CallSeconds call_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                         const model::LayerSpec& layer, bool is_frozen,
                         const program::LayerProgram& program);

// Of each kind of layer of a job.
struct LayerSeconds {
  std::shared_ptr<const LayerKinds> kinds;
  std::vector<CallSeconds> of_kind;

  const CallSeconds& of(const model::LayerSpec& layer) const { return of_kind[kinds->of(layer)]; }
  // The first of that kind, which the model has.
  const CallSeconds& of(model::LayerKind kind, bool is_frozen = false) const {
    return of_kind[kinds->of(kind, is_frozen)];
  }
};
// Depends on what layer_key() holds. Pure; any thread.
LayerSeconds layer_seconds(const JobSpec& job, const choice::LayoutChoice& choice);

}  // namespace smp::cost
