#include "smp/planner/time_estimate.h"

#include <algorithm>
#include <cmath>

#include "smp/plan/model_flops.h"
#include "smp/plan/parameter_counts.h"
#include "smp/planner/pipeline_estimate.h"
#include "stage_seconds.h"
#include "step_messages.h"

namespace smp {
namespace {

constexpr size_t index_of(TimePart part) { return static_cast<size_t>(part); }

StageSeconds seconds_of_stage(const JobSpec& job, const LayoutChoice& choice,
                              const LayerBytes& bytes, const LayerSeconds& layers, int64_t stage) {
  return stage_seconds(job, choice, bytes, layers, stage, stage_content(job, choice, bytes, stage));
}

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

}  // namespace

std::string_view name_of(TimePart part) {
  constexpr std::string_view kNames[kTimeParts] = {
      "matmuls",         "memory-bound kernels", "kernel launches", "recomputation",
      "tensor messages", "context messages",     "expert messages", "pipeline messages",
      "sharding",        "data reduction",       "offloading",      "bubble",
      "optimizer"};
  return kNames[index_of(part)];
}

TimeEstimate estimate_time(const JobSpec& job, const LayoutChoice& choice, const LayerBytes& bytes,
                           const LayerSeconds& layers) {
  const int64_t p = choice.pipeline;
  // Stages differ at the ends; of those between, the first holds the most blocks.
  const StageSeconds first = seconds_of_stage(job, choice, bytes, layers, 0);
  const StageSeconds last = p > 1 ? seconds_of_stage(job, choice, bytes, layers, p - 1) : first;
  const StageSeconds middle = p > 2 ? seconds_of_stage(job, choice, bytes, layers, 1) : first;
  const StageSeconds* busiest = &first;
  int64_t fullest = 0;
  if (last.both() > busiest->both()) {
    busiest = &last;
    fullest = p - 1;
  }
  if (middle.both() > busiest->both()) {
    busiest = &middle;
    fullest = 1;
  }

  PipelineShape shape;
  shape.kind = choice.schedule;
  shape.stages = p;
  shape.virtual_stages = choice.virtual_stages;
  shape.microbatches = choice.microbatches;
  shape.active_microbatches = choice.active_microbatches;
  shape.stage = work_of(middle, choice);
  if (p > 1) {
    shape.first = difference(work_of(first, choice), shape.stage);
    shape.last = difference(work_of(last, choice), shape.stage);
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
    pipeline -= missing * middle.both() / std::max(1, choice.virtual_stages);
  }

  const double m = choice.microbatches;
  TimeEstimate time;
  for (size_t i = 0; i < time.seconds.size(); ++i) time.seconds[i] = m * busiest->parts[i];
  const double bubble = std::max(0.0, pipeline - m * busiest->both());
  time.seconds[index_of(TimePart::kBubble)] = bubble;
  time.bubble_share = pipeline > 0 ? bubble / pipeline : 0;
  time.least_bubble_s =
      std::clamp(least_pipeline_seconds(shape) - m * busiest->both(), 0.0, bubble);

  const StepMessages after =
      step_messages(job, choice, stage_parameters(job, choice, bytes, fullest), busiest->forward,
                    busiest->backward);
  time.seconds[index_of(TimePart::kReplica)] += after.reduce_s;
  time.seconds[index_of(TimePart::kSharding)] += after.shard_s;
  time.seconds[index_of(TimePart::kOffload)] += after.offload_s;
  time.seconds[index_of(TimePart::kOptimizer)] += after.optimizer_s;
  for (const double part : time.seconds) time.step_s += part;
  const double samples = static_cast<double>(choice.micro_batch) *
                         static_cast<double>(choice.microbatches) *
                         static_cast<double>(choice.data());
  time.model_flops = model_flops(job.model, job.training.sequence_length, samples);
  return time;
}

}  // namespace smp
