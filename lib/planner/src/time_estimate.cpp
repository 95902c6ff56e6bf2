#include "time_estimator.h"

#include <algorithm>
#include <cmath>

#include "smp/plan/parameter_counts.h"
#include "smp/planner/pipeline_estimate.h"
#include "stage_seconds.h"
#include "step_messages.h"

namespace smp {
namespace {

constexpr size_t index_of(TimePart part) { return static_cast<size_t>(part); }

PipelineShape::Work work_of(const StageSeconds& stage, const LayoutChoice& choice) {
  // Zero-bubble schedules do the weights' gradients when there is time: half of a backward.
  const bool apart =
      choice.schedule == PipelineKind::kZbH1 || choice.schedule == PipelineKind::kZbV;
  const double weight = apart ? stage.weight : 0;
  return {stage.forward, stage.backward - weight, weight};
}

PipelineShape::Work difference(const PipelineShape::Work& a, const PipelineShape::Work& b) {
  return {a.forward_s - b.forward_s, a.backward_s - b.backward_s, a.weight_s - b.weight_s};
}

double flops_of_step(const JobSpec& job, const LayoutChoice& choice) {
  const ModelSpec& model = job.model;
  const ParameterCounts counts = parameter_counts(model);
  // The embedding is no matmul, the head is one whether tied or not.
  const double matmuls =
      counts.active() - counts.embedding.all() - counts.head.all() + counts.vocabulary.all();
  const auto s = static_cast<double>(job.training.sequence_length);
  const auto width = static_cast<double>(model.num_heads * model.head_dim);
  const double tokens =
      s * choice.micro_batch * choice.microbatches * static_cast<double>(choice.data());
  return tokens * (6 * matmuls + 12 * static_cast<double>(block_count(model)) * s * width);
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

PipelineEstimate estimate_pipeline(const JobSpec& job, const LayoutChoice& choice,
                                   const LayerBytes& bytes, const LayerSeconds& layers) {
  const int64_t p = choice.pipeline;
  struct Stage {
    StageContent content;
    StageSeconds seconds;
  };
  const auto stage_at = [&](int64_t stage) {
    const StageContent content = stage_content(job, choice, bytes, stage);
    return Stage{content, stage_seconds(job, choice, bytes, layers, stage, content)};
  };
  // Stages differ at the ends; of those between, the first holds the most blocks.
  const Stage first = stage_at(0);
  const Stage last = p > 1 ? stage_at(p - 1) : first;
  const Stage middle = p > 2 ? stage_at(1) : first;
  const Stage* busiest = &first;
  if (last.seconds.both() > busiest->seconds.both()) busiest = &last;
  if (middle.seconds.both() > busiest->seconds.both()) busiest = &middle;
  const StageSeconds& busy = busiest->seconds;

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
    const int64_t all = block_count(job.model);
    const auto most = static_cast<double>(stage_layers(choice, all, 1));
    const auto between =
        static_cast<double>(all - stage_layers(choice, all, 0) - stage_layers(choice, all, p - 1));
    const double missing = static_cast<double>(p - 2) - between / std::max(1.0, most);
    pipeline -= missing * middle.seconds.both() / std::max(1, choice.virtual_stages);
  }

  const double m = choice.microbatches;
  PipelineEstimate estimate;
  TimeEstimate& time = estimate.time;
  for (size_t i = 0; i < time.seconds.size(); ++i) time.seconds[i] = m * busy.parts[i];
  const double bubble = std::max(0.0, pipeline - m * busy.both());
  time.seconds[index_of(TimePart::kBubble)] = bubble;
  time.bubble_share = pipeline > 0 ? bubble / pipeline : 0;
  time.least_bubble_s = std::clamp(least_pipeline_seconds(shape) - m * busy.both(), 0.0, bubble);
  estimate.held = busiest->content.parameters;
  estimate.forward_s = busy.forward;
  estimate.backward_s = busy.backward;
  return estimate;
}

TimeEstimate with_step_messages(const PipelineEstimate& pipeline, const JobSpec& job,
                                const LayoutChoice& choice) {
  TimeEstimate time = pipeline.time;
  const StepMessages after =
      step_messages(job, choice, pipeline.held, pipeline.forward_s, pipeline.backward_s);
  time.seconds[index_of(TimePart::kReplica)] += after.reduce_s;
  time.seconds[index_of(TimePart::kSharding)] += after.shard_s;
  time.seconds[index_of(TimePart::kOffload)] += after.offload_s;
  time.seconds[index_of(TimePart::kOptimizer)] += after.optimizer_s;
  for (const double part : time.seconds) time.step_s += part;
  return time;
}

TimeEstimate estimate_time(const JobSpec& job, const LayoutChoice& choice, const LayerBytes& bytes,
                           const LayerSeconds& layers) {
  TimeEstimate time =
      with_step_messages(estimate_pipeline(job, choice, bytes, layers), job, choice);
  time.model_flops = flops_of_step(job, choice);
  return time;
}

LayoutChoice TimeEstimator::key_of(LayoutChoice choice) {
  choice.offload_optimizer = false;
  if (choice.sharding >= Sharding::kGradients) return choice;
  choice.sharding = Sharding::kNone;
  choice.replica *= choice.shard;
  choice.shard = 1;
  return choice;
}

const PipelineEstimate& TimeEstimator::pipeline(const LayoutChoice& choice,
                                                const LayerBytes& bytes,
                                                const LayerSeconds& layers) {
  const LayoutChoice key = key_of(choice);
  const size_t slot = 2 * (2 * static_cast<size_t>(key.recompute) + key.offload_activations) +
                      (key.sharding >= Sharding::kGradients);
  Known& known = known_[slot];
  if (!known.estimate || known.key != key) {
    known.key = key;
    known.estimate = estimate_pipeline(job_, choice, bytes, layers);
  }
  return *known.estimate;
}

TimeEstimate TimeEstimator::step(const LayoutChoice& choice, const LayerBytes& bytes,
                                 const LayerSeconds& layers) {
  return with_step_messages(pipeline(choice, bytes, layers), job_, choice);
}

}  // namespace smp
