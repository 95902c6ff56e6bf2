#pragma once

#include "cost/stage_holds.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_bytes.h"

// What data parallelism, sharding, offloading and the optimizer add to the layers' own time, in
// seconds of one rank. One place for both tiers: the closed form and the simulation read it.
// docs/time.md says what overlaps what. Pure; no allocation.
namespace smp::time {

// Beside one microbatch on a stage that holds `holds`, `held` in parameters.
struct StageMessages {
  double gather_forward_s = 0;   // ZeRO-3: the stage's weights, before and beside its forward
  double gather_backward_s = 0;  // and once more for its backward
  double reduce_backward_s = 0;  // ZeRO-2 and 3: gradients, beside its backward
  double offload_s = 0;          // activations to host memory, and the same back
  double copies_s = 0;           // the same on CPUs, which compute nothing meanwhile
  double hidden = 1;             // share of gathers and reductions that computing can hide
  double once_s = 0;             // in our engine: the step's first gather and last reduction
  double slowdown = 0;           // of computing, by a collective beside it
  double send_s = 0;             // to the neighbours, both ways, where computing waits for it
};
StageMessages stage_messages(const JobSpec& job, const choice::LayoutChoice& choice,
                             const cost::LayerBytes& bytes, const cost::StageHolds& holds,
                             const cost::StageParameters& held);

// One message to the next stage: the mean of those inside hosts and between them.
double stage_send_s(const JobSpec& job, const choice::LayoutChoice& choice);
// Whether computing waits for each message (blocking sends), or goes on beside it.
bool waits_for_sends(const JobSpec& job);

// After the last backward of a stage that holds `held`: what it did not hide, and the update.
// forward and backward are of one microbatch.
struct StepMessages {
  double reduce_s = 0;   // gradients over data-parallel peers
  double shard_s = 0;    // gathers of updated weights
  double offload_s = 0;  // optimizer state in host memory
  double optimizer_s = 0;
};
StepMessages step_messages(const JobSpec& job, const choice::LayoutChoice& choice,
                           const cost::StageParameters& held, double forward_s, double backward_s);

// The same before anything is hidden: it depends on no batch and on nothing that is recomputed.
struct StepTransfers {
  double in_shards_s = 0, across_s = 0;  // of the reduction: in shard groups, and of their sums
  double last_s = 0;                     // its last bucket's
  double shard_slowdown = 0, across_slowdown = 0;  // of computing beside them
  double tied_s = 0;                               // the exchange of a tied embedding's gradients
  double gather_s = 0;                             // of updated weights
  double offload_s = 0, optimizer_s = 0;
  // Of our engine.
  bool in_engine = false;
  double norm_share = 0;     // of optimizer_s: the norm of all gradients
  double agree_s = 0;        // of all ranks, on norm and loss
  int agreements = 1;        // a step's
  double calls = 1;          // of the reduction
  double tied_reduce_s = 0;  // of the embedding, once its copy's gradient is there
};
StepTransfers step_transfers(const JobSpec& job, const choice::LayoutChoice& choice,
                             const cost::StageParameters& held);
StepMessages step_messages(const JobSpec& job, const choice::LayoutChoice& choice,
                           const StepTransfers& transfers, double forward_s, double backward_s);

}  // namespace smp::time
