#include "importers/import_deepspeed_training.h"

#include <fmt/format.h>

#include <cmath>

#include "smp/plan/spec/job_spec.h"
#include "smp/plan/text/lower_case.h"
#include "smp/plan/text/suggest.h"

namespace smp::importers {
namespace {

constexpr std::string_view kParams = "scheduler.params.";

std::string param(std::string_view key) { return std::string(kParams) + std::string(key); }

// Sets DeepSpeed's default for an absent parameter of its optimizer.
void set_absent(ForeignReader& reader, std::string_view key, std::string path, std::string value) {
  if (!reader.has("optimizer.type") || reader.has(key) || reader.is_auto(key)) return;
  reader.set(std::move(path), std::move(value), fmt::format("no {}: DeepSpeed's default", key));
}

void read_betas(ForeignReader& reader) {
  constexpr std::string_view kBetas = "optimizer.params.betas";
  const text::YamlNode* betas = reader.node(kBetas);
  if (betas == nullptr) {
    set_absent(reader, kBetas, "training.optimizer.beta1", "0.9");
    set_absent(reader, kBetas, "training.optimizer.beta2", "0.999");
    return;
  }
  if (betas->items.size() != 2 || !number_value(betas->items[0].text) ||
      !number_value(betas->items[1].text)) {
    reader.error(kBetas, "optimizer.params.betas must be a list of two numbers");
    return;
  }
  reader.set("training.optimizer.beta1", betas->items[0].text, "optimizer.params.betas");
  reader.set("training.optimizer.beta2", betas->items[1].text, "optimizer.params.betas");
}

// deepspeed/runtime/engine.py, _configure_basic_optimizer: AdamW's is always decoupled.
void check_decay(ForeignReader& reader, const std::string& type) {
  constexpr std::string_view kMode = "optimizer.params.adam_w_mode";
  if (type != "adam" || reader.boolean(kMode).value_or(true)) return;
  if (reader.number("optimizer.params.weight_decay").value_or(0) == 0 &&
      !reader.is_auto("optimizer.params.weight_decay")) {
    return;
  }
  reader.error(kMode,
               "adam_w_mode: false adds weight_decay to the gradients (L2), which smp does not "
               "support (smp runs AdamW): write adam_w_mode: true, or weight_decay: 0");
}

void check_correction(ForeignReader& reader) {
  constexpr std::string_view kKey = "optimizer.params.bias_correction";
  if (reader.boolean(kKey).value_or(true)) return;
  reader.warn(kKey, "bias_correction: false: smp's Adam corrects the bias, at the same price");
}

void copy(ForeignReader& reader, std::string_view key, std::string_view path) {
  if (const auto text = reader.text(key)) reader.set_from(key, std::string(path), *text);
}

// The first step's rate; ours rises from 0.
void check_rise(ForeignReader& reader, std::string_view key) {
  if (reader.number(key).value_or(0) == 0) return;
  reader.warn(key, fmt::format("DeepSpeed's warm-up begins at {}, smp's near 0", key));
}

void read_rates(ForeignReader& reader) {
  const auto high = reader.number(param("warmup_max_lr"));
  const auto own = reader.number("optimizer.params.lr");
  if (high && own && *high != *own) {
    reader.error(param("warmup_max_lr"),
                 fmt::format("keys disagree: scheduler.params.warmup_max_lr is {}, but "
                             "optimizer.params.lr is {}",
                             *high, *own));
  } else if (high && !own) {
    reader.set_from(param("warmup_max_lr"), "training.optimizer.learning_rate",
                    fmt::format("{}", *high));
  }
}

}  // namespace

void read_deepspeed_optimizer(ForeignReader& reader) {
  const std::string folded = text::lower_case(reader.text("optimizer.type").value_or("adam"));
  if (!reader.has("scheduler.params.warmup_max_lr")) {
    set_absent(reader, "optimizer.params.lr", "training.optimizer.learning_rate", "0.001");
  }
  if (folded == "sgd") {
    reader.set_from("optimizer.type", "training.optimizer.kind", "sgd");
    // torch.optim.SGD's own default.
    reader.set("training.optimizer.momentum",
               reader.text("optimizer.params.momentum").value_or("0"), "optimizer.params.momentum");
    set_absent(reader, "optimizer.params.weight_decay", "training.optimizer.weight_decay", "0");
    copy(reader, "optimizer.params.nesterov", "training.optimizer.nesterov");
    return;
  }
  if (folded != "adam" && folded != "adamw") {
    reader.error("optimizer.type",
                 fmt::format("optimizer {} is not supported: write Adam, AdamW or SGD",
                             text::quoted_for_message(*reader.text("optimizer.type"))));
  }
  check_decay(reader, folded);
  check_correction(reader);
  copy(reader, "optimizer.params.eps", "training.optimizer.epsilon");
  set_absent(reader, "optimizer.params.eps", "training.optimizer.epsilon", "1e-8");
  set_absent(reader, "optimizer.params.weight_decay", "training.optimizer.weight_decay", "0");
  read_betas(reader);
}

// deepspeed/runtime/lr_schedules.py: WarmupLR, WarmupDecayLR, WarmupCosineLR.
void read_deepspeed_schedule(ForeignReader& reader) {
  const auto type = reader.text("scheduler.type");
  if (!type) return;
  const bool constant = *type == "WarmupLR", linear = *type == "WarmupDecayLR",
             cosine = *type == "WarmupCosineLR";
  if (!constant && !linear && !cosine) {
    reader.error(
        "scheduler.type",
        fmt::format(
            "scheduler {} is not supported: write WarmupLR, WarmupDecayLR or WarmupCosineLR",
            text::quoted_for_message(*type)));
    return;
  }
  reader.set_from("scheduler.type", "training.optimizer.schedule",
                  constant ? "constant"
                  : linear ? "linear"
                           : "cosine");
  read_rates(reader);
  check_rise(reader, param(cosine ? "warmup_min_ratio" : "warmup_min_lr"));
  if (reader.text(param("warmup_type")).value_or("log") == "log" &&
      reader.whole(param("warmup_num_steps")).value_or(1000) > 0) {
    reader.note("scheduler.params.warmup_type: DeepSpeed's warm-up is logarithmic, smp's linear");
  }
  if (constant) return;
  copy(reader, param("total_num_steps"), "training.steps");
  if (linear) {
    reader.set("training.optimizer.min_learning_rate", "0", "WarmupDecayLR ends at 0");
    return;
  }
  // WarmupCosineLR ends at a share of the rate, 0.0001 where it says none.
  const auto rate = reader.number("optimizer.params.lr");
  const auto high = rate ? rate : reader.number(param("warmup_max_lr"));
  const double share = reader.number(param("cos_min_ratio")).value_or(1e-4);
  reader.set("training.optimizer.min_learning_rate",
             fmt::format("{:.12g}", share * high.value_or(OptimizerSpec{}.learning_rate)),
             "scheduler.params.cos_min_ratio");
}

// deepspeed/runtime/fp16/loss_scaler.py; defaults of runtime/precision_config.py.
void read_deepspeed_loss_scale(ForeignReader& reader) {
  const double fixed = reader.number("fp16.loss_scale").value_or(0);
  if (fixed > 0) {
    reader.set_from("fp16.loss_scale", "training.loss_scale.dynamic", "false");
    reader.set_from("fp16.loss_scale", "training.loss_scale.init_scale", fmt::format("{}", fixed));
    return;
  }
  const int64_t power = reader.whole("fp16.initial_scale_power").value_or(16);
  reader.set("training.loss_scale.init_scale", fmt::format("{}", std::exp2(power)),
             "fp16.initial_scale_power");
  copy(reader, "fp16.loss_scale_window", "training.loss_scale.scale_window");
  copy(reader, "fp16.min_loss_scale", "training.loss_scale.min_scale");
  reader.set("training.loss_scale.delayed_shift",
             fmt::format("{}", reader.whole("fp16.hysteresis").value_or(2)), "fp16.hysteresis");
}

}  // namespace smp::importers
