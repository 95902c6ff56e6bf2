#include "jobfile/field_rows.h"

// How gradients change the weights: the sections training.optimizer and training.loss_scale.
namespace smp::jobfile {
namespace {

const OptimizerSpec& optimizer_of(const JobSpec& job) { return job.training.optimizer; }
bool is_adamw(const JobSpec& job) { return optimizer_of(job).kind == OptimizerKind::kAdamW; }
bool is_sgd(const JobSpec& job) { return optimizer_of(job).kind == OptimizerKind::kSgd; }
bool falls(const JobSpec& job) {
  return optimizer_of(job).schedule != LearningRateSchedule::kConstant;
}
bool is_wsd(const JobSpec& job) { return optimizer_of(job).schedule == LearningRateSchedule::kWsd; }

bool is_fp16(const JobSpec& job) { return job.training.precision == Precision::kFp16; }
bool is_dynamic_fp16(const JobSpec& job) { return is_fp16(job) && job.training.loss_scale.dynamic; }

bool is_half(const JobSpec& job) {
  return job.training.precision == Precision::kBf16 || is_fp16(job) ||
         (job.training.precision && is_narrow(*job.training.precision));
}

const Condition kHalf = {is_half, "training.precision", "precision: bf16, fp16 or fp8"};
const Condition kFp16 = {is_fp16, "training.precision", "precision: fp16"};
const Condition kDynamic = {is_dynamic_fp16, "training.loss_scale.dynamic",
                            "precision: fp16 and dynamic: true"};
const Condition kAdamW = {is_adamw, "training.optimizer.kind", "kind: adamw"};
const Condition kSgd = {is_sgd, "training.optimizer.kind", "kind: sgd"};
const Condition kFalls = {falls, "training.optimizer.schedule", "schedule: linear, cosine or wsd"};
const Condition kWsd = {is_wsd, "training.optimizer.schedule", "schedule: wsd"};

}  // namespace

void add_optimizer_fields(std::vector<Field>& out) {
  const std::vector<Field> fields = {
      {kOptimizer,
       "kind",
       SMP_AT(training.optimizer.kind),
       "adamw (with decoupled decay) or sgd (with momentum): torch.optim's updates",
       {.also = {"optimizer", "optim", "name", "type"}}},
      {kOptimizer,
       "schedule",
       SMP_AT(training.optimizer.schedule),
       "learning rate after the warm-up: constant; linear or cosine to min_learning_rate at the "
       "last step; wsd = stable, then a linear decay",
       {.also = {"lr_scheduler_type", "lr_decay_style", "scheduler"}}},
      {kOptimizer,
       "learning_rate",
       SMP_AT(training.optimizer.learning_rate),
       "learning rate after the warm-up",
       {.max = 1000, .also = {"lr"}}},
      {kOptimizer,
       "min_learning_rate",
       SMP_AT(training.optimizer.min_learning_rate),
       "learning rate of the last step",
       {.max = 1000, .computed = "learning_rate / 10", .condition = kFalls, .also = {"min_lr"}}},
      {kOptimizer,
       "warmup_steps",
       SMP_AT(training.optimizer.warmup_steps),
       "steps of linear warm-up",
       {.max = kMostSteps}},
      {kOptimizer,
       "decay_steps",
       SMP_AT(training.optimizer.decay_steps),
       "number of last steps in which a wsd schedule decays",
       {.max = kMostSteps,
        .computed = "steps / 10",
        .condition = kWsd,
        .also = {"num_decay_steps", "lr_wsd_decay_iters"}}},
      {kOptimizer,
       "beta1",
       SMP_AT(training.optimizer.beta1),
       "decay of the first moment",
       {.max = 1, .max_excluded = true, .condition = kAdamW}},
      {kOptimizer,
       "beta2",
       SMP_AT(training.optimizer.beta2),
       "decay of the second moment",
       {.max = 1, .max_excluded = true, .condition = kAdamW}},
      {kOptimizer,
       "epsilon",
       SMP_AT(training.optimizer.epsilon),
       "added to the root of the second moment",
       {.max = 1, .min_excluded = true, .condition = kAdamW}},
      {kOptimizer,
       "momentum",
       SMP_AT(training.optimizer.momentum),
       "momentum of sgd; 0 = none, without state",
       {.max = 1, .max_excluded = true, .condition = kSgd}},
      {kOptimizer,
       "nesterov",
       SMP_AT(training.optimizer.nesterov),
       "Nesterov's momentum, which looks one step ahead",
       {.condition = kSgd}},
      {kOptimizer,
       "weight_decay",
       SMP_AT(training.optimizer.weight_decay),
       "decay of all weights but norms and biases; adamw decouples it, sgd adds it to the gradient",
       {.max = 10, .computed = "adamw: 0.1; sgd: 0"}},
      {kOptimizer,
       "gradient_clipping",
       SMP_AT(training.optimizer.gradient_clipping),
       "largest global norm of the gradient; 0 = off",
       {.also = {"clip_grad", "max_grad_norm", "grad_clip"}}},
      {kOptimizer,
       "master_weights",
       SMP_AT(training.optimizer.master_weights),
       "weights that the update works on beside 16-bit ones; remainder = the 16 bits that a bf16 "
       "weight lacks, none = the 16-bit weights alone",
       {.condition = kHalf, .also = {"main_params_dtype", "master_weight_dtype"}}},
      {kOptimizer,
       "momentum_dtype",
       SMP_AT(training.optimizer.momentum_dtype),
       "type of the first moment; int8 = 8 bits, and an fp32 scale for 256 elements",
       {.condition = kAdamW, .also = {"exp_avg_dtype"}}},
      {kOptimizer,
       "variance_dtype",
       SMP_AT(training.optimizer.variance_dtype),
       "type of the second moment",
       {.condition = kAdamW, .also = {"exp_avg_sq_dtype"}}},
      {kLossScale,
       "dynamic",
       SMP_AT(training.loss_scale.dynamic),
       "the scale adapts to overflows; false = init_scale for all steps",
       {.condition = kFp16, .also = {"dynamic_loss_scale"}}},
      {kLossScale,
       "init_scale",
       SMP_AT(training.loss_scale.init_scale),
       "scale of the first step; SMP's own default is 2^32",
       {.max = kMostScale,
        .min_excluded = true,
        .condition = kFp16,
        .also = {"static_loss_scale", "initial_loss_scale", "loss_scale"}}},
      {kLossScale,
       "scale_factor",
       SMP_AT(training.loss_scale.scale_factor),
       "factor by which the scale falls at an overflow and grows after scale_window steps without "
       "one",
       {.min = 1, .max = kMostScale, .min_excluded = true, .condition = kDynamic}},
      {kLossScale,
       "scale_window",
       SMP_AT(training.loss_scale.scale_window),
       "steps without overflow before the scale grows",
       {.min = 1, .max = kMostSteps, .condition = kDynamic, .also = {"loss_scale_window"}}},
      {kLossScale,
       "min_scale",
       SMP_AT(training.loss_scale.min_scale),
       "smallest scale",
       {.max = kMostScale,
        .min_excluded = true,
        .condition = kDynamic,
        .also = {"min_loss_scale"}}},
      {kLossScale,
       "delayed_shift",
       SMP_AT(training.loss_scale.delayed_shift),
       "overflows before the scale falls",
       {.min = 1, .max = kMostSteps, .condition = kDynamic, .also = {"hysteresis"}}},
      {kLossScale,
       "raise_error_at_min_scale",
       SMP_AT(training.loss_scale.raise_error_at_min_scale),
       "an overflow at min_scale ends the run; false = such steps are skipped",
       {.condition = kDynamic}},
  };
  out.insert(out.end(), fields.begin(), fields.end());
}

}  // namespace smp::jobfile
