#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "importers/megatron_line.h"

// Optimizer, learning rate and loss scale of a Megatron-LM command line. Defaults:
// megatron/training/arguments.py, _add_learning_rate_args and _add_mixed_precision_args.
namespace smp::importers {
namespace {

// The loss scale of megatron/core/optimizer/grad_scaler.py: DynamicGradScaler.
constexpr double kInitialScale = 4294967296.0;  // 2^32
constexpr int64_t kHysteresis = 2;

}  // namespace

void MegatronLine::optimizer() {
  const std::string kind = reader_.text("optimizer").value_or("adam");
  if (kind == "sgd") {
    set("optimizer", "training.optimizer.kind", kind);
    set("sgd-momentum", "training.optimizer.momentum",
        reader_.text("sgd-momentum").value_or("0.9"));
    // Megatron's default for either; a job's for sgd is 0.
    if (!has("weight-decay")) {
      set("weight-decay", "training.optimizer.weight_decay", std::string("0.01"));
    }
    return;
  }
  if (kind != "adam") {
    reader_.error("optimizer",
                  fmt::format("--optimizer {} is not supported; supported are adam and sgd", kind));
    return;
  }
  const auto copy = [&](std::string_view flag, std::string_view path) {
    if (has(flag)) set(flag, path, *reader_.text(flag));
  };
  copy("adam-beta1", "training.optimizer.beta1");
  copy("adam-beta2", "training.optimizer.beta2");
  copy("adam-eps", "training.optimizer.epsilon");
  optimizer_types();
}

// megatron/core/optimizer/optimizer_config.py, __post_init__ and store_param_remainders, whose
// default is true: of an fp32 weight the 16 bits that the bf16 weight lacks are kept. Not where
// Megatron itself updates fp32 weights: with fp8 recipes but delayed scaling, and on the host.
void MegatronLine::optimizer_types() {
  constexpr const char* kAware = "use-precision-aware-optimizer";
  for (const char* flag :
       {"main-params-dtype", "main-grads-dtype", "exp-avg-dtype", "exp-avg-sq-dtype"}) {
    if (reader_.text(flag).value_or("fp32") == "fp32" || has(kAware)) continue;
    reader_.error(flag, fmt::format("--{} other than fp32 needs --{}", flag, kAware));
    return;
  }
  const auto type = [&](std::string_view flag, std::string_view path) {
    if (has(flag)) set(flag, path, *reader_.text(flag));
  };
  type("exp-avg-dtype", "training.optimizer.momentum_dtype");
  type("exp-avg-sq-dtype", "training.optimizer.variance_dtype");
  constexpr const char* kMaster = "training.optimizer.master_weights";
  if (reader_.text("main-params-dtype").value_or("fp32") == "fp16") {
    set("main-params-dtype", kMaster, std::string("fp16"));
  } else if (has(kAware) && has("bf16") && !has("fp8-param-gather") && !has("fp4-param-gather") &&
             !has("optimizer-cpu-offload") && !has("no-store-param-remainders") &&
             reader_.text("fp8-recipe").value_or("delayed") == "delayed") {
    set(kAware, kMaster, std::string("remainder"));
  }
}

// The steps that so many samples are. megatron/training/training.py: update_train_iters.
std::optional<int64_t> MegatronLine::steps_of(std::string_view flag) {
  const auto samples = whole(flag);
  const auto batch = whole("global-batch-size");
  if (!samples) return std::nullopt;
  if (!batch) {
    reader_.error(
        flag,
        fmt::format("--{} requires --global-batch-size, because a job file counts steps", flag));
    return std::nullopt;
  }
  if (!has("rampup-batch-size")) return *samples / *batch;
  const auto steps = ramped_steps(*samples, *batch);
  if (!steps) {
    reader_.error(
        "rampup-batch-size",
        fmt::format("--rampup-batch-size does not reach --global-batch-size {} in whole increments",
                    *batch));
  }
  return steps;
}

// While samples up to the ramp's third number are consumed, the batch grows by an increment with
// each equal share of them. Nothing where the ramp does not reach the batch.
std::optional<int64_t> MegatronLine::ramped_steps(int64_t samples, int64_t batch) const {
  const text::YamlNode& ramp = *reader_.node("rampup-batch-size");
  if (ramp.items.size() != 3) return 0;  // reported
  const auto start = whole_value(ramp.items[0].text), increment = whole_value(ramp.items[1].text),
             ramped = whole_value(ramp.items[2].text);
  if (!start || !increment || !ramped || *start < 1 || *increment < 1 || *ramped < 1) return 0;
  constexpr int64_t kMostIncrements = 1000000;
  const int64_t increments = (batch - *start) / *increment;
  if (*start > batch || (batch - *start) % *increment != 0 || increments > kMostIncrements) {
    return std::nullopt;
  }
  if (increments == 0) return samples / batch;
  const double share = static_cast<double>(*ramped) / static_cast<double>(increments);
  int64_t consumed = 0, steps = 0;
  while (consumed <= std::min(*ramped, samples)) {
    const auto done = static_cast<int64_t>(static_cast<double>(consumed) / share);
    const int64_t own = *start + std::min(done, increments) * *increment;
    // As many steps as have this batch.
    const auto end =
        std::min({static_cast<int64_t>(std::ceil(share * static_cast<double>(done + 1))),
                  *ramped + 1, samples + 1});
    const int64_t more = std::max<int64_t>((end - consumed + own - 1) / own, 1);
    steps += more;
    consumed += more * own;
  }
  return steps + std::max<int64_t>(samples - consumed, 0) / batch;
}

void MegatronLine::learning_rate() {
  auto steps = whole("train-iters");
  if (const auto counted = steps_of("train-samples")) {
    steps = counted;
    set("train-samples", "training.steps", *steps);
  }
  warm_up(steps);
  if (!has("lr")) return;
  const std::string style = reader_.text("lr-decay-style").value_or("linear");
  if (style != "constant" && style != "linear" && style != "cosine" && style != "WSD") {
    reader_.error(
        "lr-decay-style",
        fmt::format(
            "--lr-decay-style {} is not supported; supported are constant, linear, cosine and WSD",
            style));
    return;
  }
  const bool wsd = style == "WSD";
  set("lr-decay-style", "training.optimizer.schedule", wsd ? std::string("wsd") : style);
  if (style == "constant") return;
  set("min-lr", "training.optimizer.min_learning_rate", reader_.text("min-lr").value_or("0"));
  auto decay = whole("lr-decay-iters");
  if (const auto counted = steps_of("lr-decay-samples")) decay = counted;
  if (decay && steps && *decay != *steps) {
    const std::string_view flag = has("lr-decay-iters") ? "lr-decay-iters" : "lr-decay-samples";
    reader_.warn(
        flag,
        fmt::format("Megatron's learning rate decays over {} steps; smp's decays over all {} steps",
                    *decay, *steps));
  }
  if (!wsd) return;
  if (const auto last = whole("lr-wsd-decay-iters")) {
    set("lr-wsd-decay-iters", "training.optimizer.decay_steps", *last);
  }
  if (const auto fall = reader_.text("lr-wsd-decay-style").value_or("exponential");
      fall != "linear") {
    reader_.warn("lr-wsd-decay-style", fmt::format("smp's final decay is linear, not {}", fall));
  }
}

void MegatronLine::warm_up(std::optional<int64_t> steps) {
  if (const auto iters = whole("lr-warmup-iters")) {
    set("lr-warmup-iters", "training.optimizer.warmup_steps", *iters);
    return;
  }
  if (const auto counted = steps_of("lr-warmup-samples")) {
    set("lr-warmup-samples", "training.optimizer.warmup_steps", *counted);
    return;
  }
  const auto fraction = reader_.number("lr-warmup-fraction");
  if (!fraction) return;
  const auto of = has("lr-decay-iters") ? whole("lr-decay-iters") : steps;
  if (!of) {
    reader_.error("lr-warmup-fraction", "--lr-warmup-fraction needs --train-iters");
    return;
  }
  set("lr-warmup-fraction", "training.optimizer.warmup_steps",
      static_cast<int64_t>(std::llround(*fraction * static_cast<double>(*of))));
}

void MegatronLine::loss_scale() {
  if (!has("fp16")) return;
  const auto number = [&](std::string_view flag, std::string_view path, double fallback) {
    set(flag, path, fmt::format("{}", reader_.number(flag).value_or(fallback)));
  };
  if (has("loss-scale")) {
    set("loss-scale", "training.loss_scale.dynamic", false);
    number("loss-scale", "training.loss_scale.init_scale", 1);
    return;
  }
  number("initial-loss-scale", "training.loss_scale.init_scale", kInitialScale);
  number("min-loss-scale", "training.loss_scale.min_scale", 1);
  number("loss-scale-window", "training.loss_scale.scale_window", 1000);
  set("hysteresis", "training.loss_scale.delayed_shift", whole("hysteresis").value_or(kHysteresis));
  reader_.set("training.loss_scale.raise_error_at_min_scale", "false", "Megatron skips such steps");
}

}  // namespace smp::importers
