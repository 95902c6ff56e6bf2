#include <fmt/format.h>

#include "jobfile/job_builder.h"

// Defaults of training.optimizer that follow from its other keys, and what they must say together.
namespace smp::jobfile {
namespace {

constexpr double kLearningRateFall = 10;  // from the highest to the last
constexpr int64_t kDecayShare = 10;       // of the steps, one in so many: Hagele et al. 2405.18392

}  // namespace

void JobBuilder::resolve_optimizer() {
  OptimizerSpec& optimizer = spec_.training.optimizer;
  if (!given("training.optimizer.min_learning_rate") && given("training.optimizer.learning_rate")) {
    optimizer.min_learning_rate = optimizer.learning_rate / kLearningRateFall;
  }
  if (!given("training.optimizer.weight_decay") && optimizer.kind == OptimizerKind::kSgd) {
    optimizer.weight_decay = 0;
  }
  if (!given("training.optimizer.decay_steps") &&
      optimizer.schedule == LearningRateSchedule::kWsd) {
    optimizer.decay_steps = spec_.training.steps / kDecayShare;
  }
}

void JobBuilder::check_optimizer() {
  const OptimizerSpec& optimizer = spec_.training.optimizer;
  if (usable({"training.optimizer.min_learning_rate", "training.optimizer.learning_rate"}) &&
      optimizer.schedule != LearningRateSchedule::kConstant &&
      optimizer.min_learning_rate > optimizer.learning_rate) {
    error({"training.optimizer.min_learning_rate"},
          fmt::format("min_learning_rate ({}) is above learning_rate ({})",
                      optimizer.min_learning_rate, optimizer.learning_rate));
  }
  if (usable({"training.optimizer.nesterov", "training.optimizer.momentum"}) &&
      optimizer.nesterov && optimizer.momentum == 0) {
    error({"training.optimizer.nesterov"}, "nesterov: true needs momentum above 0");
  }
  const LossScaleSpec& scale = spec_.training.loss_scale;
  if (spec_.training.precision == Precision::kFp16 && scale.dynamic &&
      usable({"training.loss_scale.init_scale", "training.loss_scale.min_scale"}) &&
      scale.min_scale > scale.init_scale) {
    error(
        {"training.loss_scale.min_scale", "training.loss_scale.init_scale"},
        fmt::format("min_scale ({}) is above init_scale ({})", scale.min_scale, scale.init_scale));
  }
  const int64_t steps = spec_.training.steps;
  if (optimizer.schedule != LearningRateSchedule::kWsd || steps == 0) return;
  if (!usable({"training.steps", "training.optimizer.warmup_steps",
               "training.optimizer.decay_steps"})) {
    return;
  }
  if (optimizer.warmup_steps + optimizer.decay_steps > steps) {
    error({"training.optimizer.decay_steps", "training.optimizer.warmup_steps"},
          fmt::format("warmup_steps ({}) + decay_steps ({}) are more than steps ({})",
                      optimizer.warmup_steps, optimizer.decay_steps, steps));
  }
}

}  // namespace smp::jobfile
