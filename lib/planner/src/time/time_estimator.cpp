#include "time/time_estimator.h"

#include <algorithm>
#include <cmath>

#include "smp/plan/model/model_flops.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/schedule/schedule_shape.h"
#include "smp/planner/cost/narrow_matmuls.h"
#include "smp/planner/time/pipeline_estimate.h"
#include "time/step_messages.h"

namespace smp::time {
namespace {

constexpr size_t index_of(TimePart part) { return static_cast<size_t>(part); }

PipelineShape::Work work_of(const StageSeconds& stage, const choice::LayoutChoice& choice) {
  // Zero-bubble schedules do the weights' gradients when there is time: half of a backward.
  const bool apart =
      choice.schedule == PipelineKind::kZbH1 || choice.schedule == PipelineKind::kZbV;
  const double weight = apart ? stage.weight : 0;
  return {stage.forward, stage.backward - weight, weight};
}

PipelineShape::Work difference(const PipelineShape::Work& a, const PipelineShape::Work& b) {
  return {a.forward_s - b.forward_s, a.backward_s - b.backward_s, a.weight_s - b.weight_s};
}

// Optimizer states that are sharded or offloaded come in after the last backward.
void leave_out_optimizer(choice::LayoutChoice& choice) {
  choice.offload_optimizer = false;
  if (choice.sharding >= Sharding::kGradients) return;
  choice.sharding = Sharding::kNone;
  choice.replica *= choice.shard;
  choice.shard = 1;
}

}  // namespace

std::string_view name_of(TimePart part) {
  constexpr std::string_view kNames[kTimeParts] = {
      "matmuls",         "memory-bound kernels", "kernel launches", "recomputation",
      "tensor messages", "context messages",     "expert messages", "pipeline messages",
      "sharding",        "data reduction",       "offloading",      "bubble",
      "optimizer"};
  return kNames[index_of(part)];
}

EstimatedStages estimate_stages(const JobSpec& job, const choice::LayoutChoice& choice,
                                const cost::LayerBytes& bytes, const cost::LayerSeconds& layers,
                                const std::vector<cost::PricedStage>& priced) {
  const auto stage_of = [&](const cost::PricedStage& stage) {
    const cost::StageParameters held = cost::parameters_of(bytes, stage.holds);
    return EstimatedStages::Stage{held,
                                  stage_seconds(job, choice, bytes, layers, stage.holds, held)};
  };
  EstimatedStages stages;
  stages.first = stages.last = stages.middle = stage_of(priced.front());
  for (size_t i = 1; i < priced.size(); ++i) {
    const EstimatedStages::Stage stage = stage_of(priced[i]);
    if (i + 1 == priced.size()) {
      stages.last = stage;
    } else if (i == 1 || stage.seconds.both() > stages.middle.seconds.both()) {
      stages.middle = stage;
    }
  }
  return stages;
}

PipelineEstimate estimate_pipeline(const JobSpec& job, const choice::LayoutChoice& choice,
                                   const EstimatedStages& stages) {
  const int64_t p = choice.pipeline;
  const auto& [first, last, middle] = stages;
  const EstimatedStages::Stage* const all_stages[] = {&first, &last, &middle};
  size_t busiest = 0;
  for (const size_t other : {1, 2}) {
    if (all_stages[other]->seconds.both() > all_stages[busiest]->seconds.both()) busiest = other;
  }
  const StageSeconds& busy = all_stages[busiest]->seconds;

  PipelineShape shape;
  shape.kind = choice.schedule;
  shape.stages = p;
  shape.virtual_stages = choice.virtual_stages;
  shape.microbatches = choice.microbatches;
  shape.active_microbatches = choice.active_microbatches;
  shape.stage = work_of(middle.seconds, choice);
  if (p > 1) {
    shape.first = difference(work_of(first.seconds, choice), shape.stage);
    shape.last = difference(work_of(last.seconds, choice), shape.stage);
    const double send = waits_for_sends(job) ? 0 : stage_send_s(job, choice);
    shape.send_activation_s = send;
    shape.send_gradient_s = send;
  }
  double pipeline = pipeline_seconds(shape);
  if (p > 2) {
    // Some of the stages between have a block less than the first of them.
    const int64_t all = model::block_count(job.model);
    const auto most = static_cast<double>(choice::stage_layers(choice, all, 1));
    const auto between = static_cast<double>(all - choice::stage_layers(choice, all, 0) -
                                             choice::stage_layers(choice, all, p - 1));
    const double missing = static_cast<double>(p - 2) - between / std::max(1.0, most);
    pipeline -= missing * middle.seconds.both() / std::max(1, choice.virtual_stages);
  }

  const double m = choice.microbatches;
  PipelineEstimate estimate;
  TimeEstimate& time = estimate.time;
  for (size_t i = 0; i < time.seconds.size(); ++i) time.seconds[i] = m * busy.parts[i];
  time.seconds[index_of(TimePart::kSharding)] += busy.once;
  const double bubble = std::max(0.0, pipeline - m * busy.both());
  time.seconds[index_of(TimePart::kBubble)] = bubble;
  time.bubble_share = pipeline > 0 ? bubble / pipeline : 0;
  time.least_bubble_s = std::clamp(least_pipeline_seconds(shape) - m * busy.both(), 0.0, bubble);
  estimate.busiest = busiest;
  estimate.held = all_stages[busiest]->held;
  estimate.forward_s = busy.forward;
  estimate.backward_s = busy.backward;
  return estimate;
}

TimeEstimate with_step_messages(const PipelineEstimate& pipeline, const StepMessages& after) {
  TimeEstimate time = pipeline.time;
  time.seconds[index_of(TimePart::kReplica)] += after.reduce_s;
  time.seconds[index_of(TimePart::kSharding)] += after.shard_s;
  time.seconds[index_of(TimePart::kOffload)] += after.offload_s;
  time.seconds[index_of(TimePart::kOptimizer)] += after.optimizer_s;
  for (const double part : time.seconds) time.step_s += part;
  return time;
}

TimeEstimate estimate_time(const JobSpec& job, const choice::LayoutChoice& choice,
                           const cost::LayerBytes& bytes, const cost::LayerSeconds& layers) {
  cost::PricedStages priced;
  const PipelineEstimate pipeline = estimate_pipeline(
      job, choice, estimate_stages(job, choice, bytes, layers, priced.of(*bytes.kinds, choice)));
  TimeEstimate time = with_step_messages(
      pipeline, step_messages(job, choice, pipeline.held, pipeline.forward_s, pipeline.backward_s));
  const double samples = static_cast<double>(choice.micro_batch) *
                         static_cast<double>(choice.microbatches) *
                         static_cast<double>(choice.data());
  time.model_flops = model::model_flops(job, samples);
  return time;
}

choice::LayoutChoice TimeEstimator::key_of_pipeline(choice::LayoutChoice choice) {
  leave_out_optimizer(choice);
  return choice;
}

// Of the schedule it counts where the head is, and whether weight gradients are deferred. Where
// stages differ, how chunks are dealt to them counts as well.
choice::LayoutChoice TimeEstimator::key_of_stages(choice::LayoutChoice choice,
                                                  const cost::LayerKinds& kinds) const {
  leave_out_optimizer(choice);
  if (!cost::casts_weights(job_, choice)) choice.microbatches = 1;
  choice.active_microbatches = 0;
  if (kinds.differ_by_stage() && choice::shape_of(choice).chunks() > 1) return choice;
  if (!schedule::defers_weight_gradients(choice.schedule))
    choice.schedule = PipelineKind::kInterleaved;
  if (!waits_for_sends(job_)) choice.virtual_stages = 1;
  return choice;
}

// Where stages differ, what the slowest one holds depends on their seconds.
choice::LayoutChoice TimeEstimator::key_of_transfers(choice::LayoutChoice choice,
                                                     const cost::LayerKinds& kinds) const {
  if (kinds.differ_by_stage()) {
    choice::LayoutChoice key = key_of_stages(choice, kinds);
    key.offload_optimizer = choice.offload_optimizer;
    key.sharding = choice.sharding;
    key.shard = choice.shard;
    key.replica = choice.replica;
    return key;
  }
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
    const EstimatedStages& stages = stages_.of(key_of_stages(choice, *bytes.kinds), [&] {
      return estimate_stages(job_, choice, bytes, layers, priced_.of(*bytes.kinds, choice));
    });
    return estimate_pipeline(job_, choice, stages);
  });
}

TimeEstimate TimeEstimator::step(const choice::LayoutChoice& choice, const cost::LayerBytes& bytes,
                                 const cost::LayerSeconds& layers) {
  const PipelineEstimate& found = pipeline(choice, bytes, layers);
  const StepTransfers& transfers =
      transfers_[found.busiest].of(key_of_transfers(choice, *bytes.kinds),
                                   [&] { return step_transfers(job_, choice, found.held); });
  return with_step_messages(
      found, step_messages(job_, choice, transfers, found.forward_s, found.backward_s));
}

}  // namespace smp::time
