#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "jobfile/job_builder.h"
#include "smp/plan/framework/framework.h"
#include "spec/choices.h"

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
  check_state_types();
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

void JobBuilder::check_state_types() {
  const OptimizerSpec& optimizer = spec_.training.optimizer;
  constexpr std::string_view kMaster = "training.optimizer.master_weights";
  if (!usable({"parallel.framework", "training.precision", "training.fp8_parameters",
               "training.optimizer.kind"})) {
    return;
  }
  const TrainingSpec& training = spec_.training;
  const bool is_adam = optimizer.kind == OptimizerKind::kAdamW;
  if (optimizer.master_weights == MasterKind::kRemainder && usable({kMaster})) {
    const bool is_bf16 = training.precision == Precision::kBf16 ||
                         (training.precision == Precision::kFp8 && !training.fp8_parameters &&
                          training.fp8_recipe == Fp8Recipe::kDelayed);
    if (!is_bf16) {
      error({kMaster},
            "master_weights: remainder needs weights in bf16: precision bf16, or fp8 with the "
            "delayed recipe and without fp8_parameters");
    }
  }
  if (!is_adam && usable({kMaster}) && optimizer.master_weights != MasterKind::kFp32 &&
      optimizer.master_weights != MasterKind::kNone) {
    error({kMaster}, fmt::format("master_weights: {} needs kind: adamw",
                                 choice_name(optimizer.master_weights)));
  }
  const auto& habits = spec_.parallel.framework.habits;
  if (!habits) return;  // not known, or one of several
  const framework::FrameworkSupport& offers = habits->offers;
  const auto check = [&](std::string_view path, auto value, const auto& offered) {
    if (!usable({path}) || std::ranges::count(offered, value) > 0) return;
    std::vector<std::string_view> names;
    for (const auto each : offered) names.push_back(choice_name(each));
    error({path},
          fmt::format("{}: {}, but framework {} has {}", path.substr(path.rfind('.') + 1),
                      choice_name(value), spec_.parallel.framework.name, fmt::join(names, ", ")));
  };
  check(kMaster, optimizer.master_weights, offers.master_weights);
  check("training.optimizer.momentum_dtype", optimizer.momentum_dtype, offers.moments);
  check("training.optimizer.variance_dtype", optimizer.variance_dtype, offers.moments);
  const bool narrow = training.precision && is_narrow(*training.precision);
  if (training.fp8_parameters && narrow && !offers.fp8_parameters) {
    error({"training.fp8_parameters"},
          fmt::format("fp8_parameters: framework {} keeps 16-bit weights",
                      spec_.parallel.framework.name));
  }
}

}  // namespace smp::jobfile
