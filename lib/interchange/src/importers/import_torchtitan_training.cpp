#include "importers/import_torchtitan_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace smp::importers {

void read_torchtitan_optimizer(ForeignReader& reader) {
  constexpr const char* kName = "optimizer.name";
  const std::string name = reader.text(kName).value_or("AdamW");
  if (name == "Adam") {
    reader.warn(kName, "Adam becomes adamw, whose decay of weights is decoupled");
  } else if (name != "AdamW") {
    reader.error(kName, fmt::format("optimizer.name {} is not supported; supported are AdamW "
                                    "and Adam",
                                    text::quoted_for_message(name)));
  }
  constexpr const char* kKind = "optimizer.implementation";
  const std::string kind = reader.text(kKind).value_or("fused");
  if (kind == "fused_opt_states_bf16") {
    reader.set_by(kKind, "training.fused_optimizer", std::string("true"));
    for (const char* key : {"momentum_dtype", "variance_dtype"}) {
      reader.set_by(kKind, fmt::format("training.optimizer.{}", key), std::string("bf16"));
    }
  } else if (!reader.has("optimizer.fused")) {
    reader.set_by(kKind, "training.fused_optimizer",
                  std::string(kind == "fused" ? "true" : "false"));
  }
}

void read_torchtitan_learning_rate(ForeignReader& reader) {
  constexpr const char* kRatio = "lr_scheduler.decay_ratio";
  constexpr const char* kType = "lr_scheduler.decay_type";
  std::string type = reader.text(kType).value_or("linear");
  if (type == "sqrt") {
    reader.warn(kType, "smp has no square-root decay: the job has a linear one");
    type = "linear";
  }
  const auto ratio = reader.number(kRatio);
  const auto steps = reader.whole("training.steps");
  if (ratio && steps) {
    reader.set_by(kRatio, "training.optimizer.schedule", std::string("wsd"));
    reader.set_by(kRatio, "training.optimizer.decay_steps",
                  static_cast<int64_t>(std::llround(*ratio * static_cast<double>(*steps))));
    if (type == "cosine") reader.warn(kType, "smp's final decay is linear, not cosine");
  } else {
    reader.set_by(kType, "training.optimizer.schedule", type);
  }
  const std::string factor =
      reader.has("lr_scheduler.lr_min") ? "lr_scheduler.lr_min" : "lr_scheduler.min_lr_factor";
  if (const auto rate = reader.number("optimizer.lr")) {
    reader.set_by(factor, "training.optimizer.min_learning_rate",
                  fmt::format("{:g}", *rate * reader.number(factor).value_or(0)));
  }
}

void read_torchtitan_compilation(ForeignReader& reader) {
  const std::string key =
      reader.boolean("training.compile") == true ? "training.compile" : "compile.enable";
  if (reader.boolean(key) != true) return;
  const text::YamlNode* parts = reader.node("compile.components");
  const auto has = [&](std::string_view part) {
    return parts == nullptr || std::ranges::count(parts->items, part, &text::YamlNode::text) > 0;
  };
  if (has("model")) reader.set_by(key, "training.compiled", std::string("true"));
  if (has("loss")) reader.set_by(key, "training.fused_loss", std::string("true"));
}

}  // namespace smp::importers
