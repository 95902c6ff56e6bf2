#include <fmt/format.h>
#include <fmt/ranges.h>

#include "exporters/export_view.h"
#include "smp/plan/spec/checkpoint_strategy.h"
#include "smp/plan/spec/job_names.h"

// Notes on what several targets leave to the script: their files have no place for it.
namespace smp::exporters {
namespace {

std::string optimizer_words(const OptimizerSpec& optimizer) {
  if (optimizer.kind == OptimizerKind::kSgd) {
    return fmt::format("sgd with momentum {}{}", optimizer.momentum,
                       optimizer.nesterov ? ", nesterov" : "");
  }
  std::string out = fmt::format("adamw with betas {} and {}, epsilon {}", optimizer.beta1,
                                optimizer.beta2, optimizer.epsilon);
  if (optimizer.momentum_dtype != MomentKind::kFp32 ||
      optimizer.variance_dtype != MomentKind::kFp32) {
    out += fmt::format(", moments in {} and {}", name_of(optimizer.momentum_dtype),
                       name_of(optimizer.variance_dtype));
  }
  if (optimizer.master_weights != MasterKind::kFp32) {
    out += fmt::format(", master weights {}", name_of(optimizer.master_weights));
  }
  return out;
}

std::string schedule_words(const OptimizerSpec& optimizer) {
  std::string out =
      fmt::format("learning rate {} {}", optimizer.learning_rate, name_of(optimizer.schedule));
  if (optimizer.schedule != LearningRateSchedule::kConstant) {
    out += fmt::format(" to {}", optimizer.min_learning_rate);
  }
  if (optimizer.schedule == LearningRateSchedule::kWsd) {
    out += fmt::format(" in the last {} steps", optimizer.decay_steps);
  }
  return out + fmt::format(" after {} warm-up steps", optimizer.warmup_steps);
}

std::string loss_scale_words(const LossScaleSpec& scale) {
  if (!scale.dynamic) return fmt::format("constant {}", scale.init_scale);
  return fmt::format(
      "initial {}, factor {}, raised after {} steps, lowered after {} overflows, "
      "minimum {}{}",
      scale.init_scale, scale.scale_factor, scale.scale_window, scale.delayed_shift,
      scale.min_scale, scale.raise_error_at_min_scale ? ", error at the minimum" : "");
}

std::string adapter_words(const LoraSpec& lora) {
  return fmt::format(
      "rank {}, alpha {}, dropout {}, beside {}, frozen weights {}", lora.rank, lora.alpha,
      lora.dropout, fmt::join(lora.targets, ", "),
      lora.quantized == QuantizedKind::kNone ? "as they are" : name_of(lora.quantized));
}

}  // namespace

void Refusals::fine_tuning(bool target_trains) {
  const LoraSpec& lora = view_.training.lora;
  const std::vector<std::string>& frozen = view_.training.frozen;
  if (target_trains) {
    refuse_if(lora.rank > 0, "training.lora (the program that it starts trains all weights)",
              "training.lora.rank: 0");
    refuse_if(!frozen.empty(), "training.frozen (the program that it starts trains all weights)",
              "training.frozen: []");
    return;
  }
  if (lora.rank > 0) note("add the adapters in the script: " + adapter_words(lora));
  if (!frozen.empty()) note(fmt::format("freeze in the script: {}", fmt::join(frozen, ", ")));
}

void Refusals::fp32_states() {
  const OptimizerSpec& optimizer = view_.training.optimizer;
  refuse_if(optimizer.momentum_dtype != MomentKind::kFp32,
            fmt::format("momentum_dtype {}", name_of(optimizer.momentum_dtype)), "fp32");
  refuse_if(optimizer.variance_dtype != MomentKind::kFp32,
            fmt::format("variance_dtype {}", name_of(optimizer.variance_dtype)), "fp32");
  refuse_if(optimizer.master_weights != MasterKind::kFp32,
            fmt::format("master_weights {}", name_of(optimizer.master_weights)), "fp32");
}

void Refusals::note_schedule() {
  note(fmt::format("set the schedule in the script: {}", schedule_words(view_.training.optimizer)));
}

void Refusals::note_optimizer() {
  const OptimizerSpec& optimizer = view_.training.optimizer;
  note(fmt::format("set the optimizer in the script: {}; {}; weight decay {}, clipping {}",
                   optimizer_words(optimizer), schedule_words(optimizer), optimizer.weight_decay,
                   optimizer.gradient_clipping));
  if (view_.precision == Precision::kFp16) {
    note("set the loss scale in the script: " + loss_scale_words(view_.training.loss_scale));
  }
}

void Refusals::note_part_of_recompute() {
  if (view_.recompute != Recompute::kFull) return;
  const ParallelSpec& parallel = view_.parallel;
  if (parallel.recompute_layers) {
    note(fmt::format("recompute_layers {}: choose the recomputed layers in the script",
                     *parallel.recompute_layers));
  }
  const std::string& strategy = parallel.activation_checkpointing_strategy;
  if (layers_per_checkpoint(strategy).value_or(1) > 1) {
    note(fmt::format(
        "activation_checkpointing_strategy {}: choose the recomputed layers in the script",
        strategy));
  }
}

void Refusals::note_ramp() {
  const TrainingSpec& training = view_.training;
  if (training.batch_ramp_start == 0) return;
  note(fmt::format("batch_ramp_start {} by {}: the file has only the final batch size",
                   training.batch_ramp_start, training.batch_ramp_increment));
}

void Refusals::loss_scale_doubles() {
  const double factor = view_.training.loss_scale.scale_factor;
  refuse_if(view_.precision == Precision::kFp16 && factor != 2,
            fmt::format("loss_scale.scale_factor {}", factor), "2");
}

}  // namespace smp::exporters
