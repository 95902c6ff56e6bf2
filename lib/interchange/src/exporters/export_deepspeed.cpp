#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "exporters/export_view.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/spec/bucket_size.h"
#include "smp/plan/spec/checkpoint_strategy.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/json.h"

// ds_config.json. Rules: DeepSpeed 0.19, runtime/config.py (the batch equation), runtime/pipe/
// engine.py (a pipeline needs ZeRO 0 or 1), runtime/zero/config.py (keys of the nested blocks).
namespace smp::exporters {
namespace {

int64_t power_of(double scale) {  // the nearest, 0 at least
  return std::max(std::lround(std::log2(scale)), 0L);
}

void refuse(const ExportView& view, Refusals& refusals) {
  const mesh::Degrees& degrees = view.degrees;
  const bool pipeline = degrees.pipeline > 1;
  refusals.no_context();
  refusals.no_experts();
  refusals.all_tensor_kinds();
  refusals.offloads_checkpoints_alone();
  refusals.precision_among({Precision::kFp32, Precision::kBf16, Precision::kFp16},
                           Precision::kBf16);
  refusals.refuse_if(pipeline && view.schedule != PipelineKind::kInterleaved,
                     fmt::format("pipeline: {}", name_of(view.schedule)),
                     "pipeline: interleaved (1F1B)");
  refusals.refuse_if(pipeline && static_cast<int>(view.sharding) >= 2,
                     fmt::format("sharding: {} in a pipeline of {} stages", name_of(view.sharding),
                                 degrees.pipeline),
                     "sharding: optimizer_state, or pipeline_parallel_degree 1");
  refusals.refuse_if(pipeline && degrees.tensor > 1,
                     fmt::format("tensor_parallel_degree {} in a pipeline of {} stages",
                                 degrees.tensor, degrees.pipeline),
                     "one of the two keys, or the target megatron");
  refusals.refuse_if(
      degrees.tensor > 1 && view.sharding == Sharding::kParameters,
      fmt::format("tensor_parallel_degree {} with sharding: parameters", degrees.tensor),
      "sharding: gradients");
  refusals.refuse_if(pipeline && !view.partition_is_even(), "a partition of unequal stages",
                     "the same number of layers in each stage");
  refusals.refuse_if(
      view.sharding != Sharding::kNone && degrees.replica > 1,
      fmt::format("sharding: {} over {} of {} data-parallel ranks (version 0.19 removed MiCS)",
                  name_of(view.sharding), degrees.shard, degrees.data()),
      fmt::format("sharded_data_parallel_degree {}", degrees.data()));
  refusals.loss_scale_doubles();
  refusals.fp32_states();
  const LossScaleSpec& scale = view.training.loss_scale;
  const double nearest = std::exp2(power_of(scale.init_scale));
  refusals.refuse_if(
      view.precision == Precision::kFp16 && scale.dynamic && scale.init_scale != nearest,
      fmt::format(
          "loss_scale.init_scale: {:g} (a dynamic scale starts at a power of 2, at least 1)",
          scale.init_scale),
      fmt::format("loss_scale.init_scale: {:g}", nearest));
  refusals.refuse_if(view.offload_optimizer && view.sharding == Sharding::kNone,
                     "offload_optimizer without sharding", "sharding: optimizer_state");
  refusals.refuse_if(view.offload_parameters && view.sharding != Sharding::kParameters,
                     "offload_parameters without sharding: parameters", "sharding: parameters");
}

text::OrderedJson zero_block(const ExportView& view) {
  text::OrderedJson zero;
  zero["stage"] = static_cast<int>(view.sharding);
  if (view.sharding == Sharding::kNone) return zero;
  zero["overlap_comm"] = true;
  zero["contiguous_gradients"] = true;
  zero["reduce_bucket_size"] =
      std::max<int64_t>(view.parallel.bucket_bytes.value_or(kBucketBytes) / 4, 1);  // of fp32
  if (view.offload_optimizer) zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (view.sharding == Sharding::kParameters) {
    if (view.parallel.max_live_parameters > 0) {
      zero["stage3_max_live_parameters"] = view.parallel.max_live_parameters;
    }
    // 0 too: left out it is 100,000 there.
    zero["stage3_param_persistence_threshold"] = view.parallel.param_persistence_threshold;
  }
  if (view.offload_parameters) zero["offload_param"] = {{"device", "cpu"}, {"pin_memory", true}};
  return zero;
}

text::OrderedJson optimizer_block(const OptimizerSpec& optimizer) {
  if (optimizer.kind == OptimizerKind::kSgd) {
    return {{"type", "SGD"},
            {"params",
             {{"lr", optimizer.learning_rate},
              {"momentum", optimizer.momentum},
              {"nesterov", optimizer.nesterov},
              {"weight_decay", optimizer.weight_decay}}}};
  }
  return {{"type", "AdamW"},
          {"params",
           {{"lr", optimizer.learning_rate},
            {"betas", {optimizer.beta1, optimizer.beta2}},
            {"eps", optimizer.epsilon},
            {"weight_decay", optimizer.weight_decay}}}};
}

// runtime/lr_schedules.py. Nothing where it has no such schedule, or no last step is known.
text::OrderedJson scheduler_block(const TrainingSpec& training) {
  const OptimizerSpec& optimizer = training.optimizer;
  const LearningRateSchedule kind = optimizer.schedule;
  text::OrderedJson params;
  params["warmup_num_steps"] = optimizer.warmup_steps;
  params["warmup_type"] = "linear";
  if (kind == LearningRateSchedule::kConstant) {
    params["warmup_max_lr"] = optimizer.learning_rate;
    return {{"type", "WarmupLR"}, {"params", params}};
  }
  if (training.steps == 0) return {};
  params["total_num_steps"] = training.steps;
  if (kind == LearningRateSchedule::kCosine) {
    params["cos_min_ratio"] = optimizer.min_learning_rate / optimizer.learning_rate;
    return {{"type", "WarmupCosineLR"}, {"params", params}};
  }
  if (kind != LearningRateSchedule::kLinear || optimizer.min_learning_rate > 0) return {};
  params["warmup_max_lr"] = optimizer.learning_rate;
  return {{"type", "WarmupDecayLR"}, {"params", params}};
}

// runtime/precision_config.py.
text::OrderedJson fp16_block(const LossScaleSpec& scale) {
  text::OrderedJson out = {{"enabled", true}};
  if (!scale.dynamic) {
    out["loss_scale"] = scale.init_scale;
    return out;
  }
  out["loss_scale"] = 0;
  out["initial_scale_power"] = power_of(scale.init_scale);
  out["loss_scale_window"] = scale.scale_window;
  out["min_loss_scale"] = scale.min_scale;
  out["hysteresis"] = scale.delayed_shift;
  return out;
}

}  // namespace

std::string write_deepspeed(const ExportView& view, Refusals& refusals) {
  refuse(view, refusals);
  const mesh::Degrees& degrees = view.degrees;
  text::OrderedJson out;
  out["train_batch_size"] = view.global_batch;
  out["train_micro_batch_size_per_gpu"] = view.micro_batch;
  out["gradient_accumulation_steps"] = view.microbatches;
  out["gradient_clipping"] = view.training.optimizer.gradient_clipping;
  if (view.precision == Precision::kBf16) out["bf16"] = {{"enabled", true}};
  if (view.precision == Precision::kFp16) out["fp16"] = fp16_block(view.training.loss_scale);
  const framework::FrameworkModel& habits = framework::framework_model(view.plan.job);
  const bool usually = view.precision == Precision::kFp16 ? habits.fp32_gradients_with_fp16
                                                          : habits.fp32_gradients_with_bf16;
  if (view.is_half() && (usually || view.training.accumulate_gradients_in_fp32)) {
    const bool wide = view.training.accumulate_gradients_in_fp32.value_or(usually);
    out["data_types"] = {{"grad_accum_dtype", wide ? "fp32" : name_of(view.precision)}};
  }
  out["zero_optimization"] = zero_block(view);
  out["optimizer"] = optimizer_block(view.training.optimizer);
  // runtime/engine.py refuses optimizers that it does not name, unless it is told not to.
  if (view.training.optimizer.kind == OptimizerKind::kSgd && view.sharding != Sharding::kNone) {
    out["zero_allow_untested_optimizer"] = true;
    if (view.offload_optimizer) out["zero_force_ds_cpu_optimizer"] = false;
  }
  if (const text::OrderedJson scheduler = scheduler_block(view.training); !scheduler.is_null()) {
    out["scheduler"] = scheduler;
  } else {
    refusals.note_schedule();
  }
  if (degrees.tensor > 1) out["tensor_parallel"] = {{"autotp_size", degrees.tensor}};
  const auto group = layers_per_checkpoint(view.parallel.activation_checkpointing_strategy);
  const int64_t stage = (view.model.num_layers + degrees.pipeline - 1) / degrees.pipeline;
  const int64_t interval = std::min(group.value_or(1), stage);
  const bool checkpoints = view.recompute == Recompute::kFull;
  if (degrees.pipeline > 1) {
    out["pipeline"] = {{"stages", degrees.pipeline},
                       {"partition", "uniform"},
                       {"activation_checkpoint_interval", checkpoints ? interval : 0}};
    refusals.note(
        "pipeline: build PipelineModule(num_stages=..., topology=...) in the script; only smp-plan "
        "import reads the block pipeline");
    refusals.note_order("PD", "pass PipelineModule a topology in the plan's order");
  }
  if (degrees.pipeline == 1 || view.parallel.recompute_layers) refusals.note_part_of_recompute();
  if (view.offload_activations) out["activation_checkpointing"]["cpu_checkpointing"] = true;
  if (view.parallel.partition_activations) {
    out["activation_checkpointing"]["partition_activations"] = true;
  }
  if (view.recompute != Recompute::kNone && degrees.pipeline == 1) {
    refusals.note(fmt::format(
        "recompute {}: turn it on in the script, as in model.gradient_checkpointing_enable()",
        name_of(view.recompute)));
  }
  refusals.note(fmt::format("start {} x {} processes (hosts x GPUs per host)", view.hosts,
                            view.processes_per_host));
  return out.dump(2) + "\n";
}

}  // namespace smp::exporters
