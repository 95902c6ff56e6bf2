#include "time/time_estimator.h"

#include "smp/plan/schedule/schedule_shape.h"

namespace smp::time {
namespace {

// Optimizer states that are sharded or offloaded come in after the last backward.
void leave_out_optimizer(choice::LayoutChoice& choice) {
  choice.offload_optimizer = false;
  if (choice.sharding >= Sharding::kGradients) return;
  choice.sharding = Sharding::kNone;
  choice.replica *= choice.shard;
  choice.shard = 1;
}

}  // namespace

choice::LayoutChoice TimeEstimator::key_of_pipeline(choice::LayoutChoice choice) {
  leave_out_optimizer(choice);
  return choice;
}

// Of the schedule it counts where the head is, and whether weight gradients are deferred.
choice::LayoutChoice TimeEstimator::key_of_stages(choice::LayoutChoice choice) const {
  leave_out_optimizer(choice);
  choice.microbatches = 1;
  choice.active_microbatches = 0;
  if (!schedule::defers_weight_gradients(choice.schedule))
    choice.schedule = PipelineKind::kInterleaved;
  if (!waits_for_sends(job_)) choice.virtual_stages = 1;
  return choice;
}

choice::LayoutChoice TimeEstimator::key_of_transfers(choice::LayoutChoice choice) {
  choice.micro_batch = choice.microbatches = 1;
  choice.active_microbatches = 0;
  choice.virtual_stages = 1;
  if (choice.schedule != PipelineKind::kZbV) choice.schedule = PipelineKind::kInterleaved;
  choice.recompute = Recompute::kNone;
  choice.recompute_layers = -1;
  choice.sequence_parallel = choice.offload_activations = false;
  return choice;
}

const PipelineEstimate& TimeEstimator::pipeline(const choice::LayoutChoice& choice,
                                                const cost::LayerBytes& bytes,
                                                const cost::LayerSeconds& layers) {
  return pipelines_.of(key_of_pipeline(choice), [&] {
    const EstimatedStages& stages = stages_.of(
        key_of_stages(choice), [&] { return estimate_stages(job_, choice, bytes, layers); });
    return estimate_pipeline(job_, choice, stages);
  });
}

TimeEstimate TimeEstimator::step(const choice::LayoutChoice& choice, const cost::LayerBytes& bytes,
                                 const cost::LayerSeconds& layers) {
  const PipelineEstimate& found = pipeline(choice, bytes, layers);
  const StepTransfers& transfers = transfers_[found.busiest].of(
      key_of_transfers(choice), [&] { return step_transfers(job_, choice, found.held); });
  return with_step_messages(
      found, step_messages(job_, choice, transfers, found.forward_s, found.backward_s));
}

}  // namespace smp::time
