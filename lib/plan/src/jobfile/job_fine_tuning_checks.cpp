#include <fmt/format.h>

#include "jobfile/job_builder.h"
#include "smp/plan/model/adapters.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/operators.h"

// What training.frozen and training.lora must say together, and with the model.
namespace smp::jobfile {

void JobBuilder::resolve_fine_tuning() {
  LoraSpec& lora = spec_.training.lora;
  if (!given("training.lora.alpha")) lora.alpha = static_cast<double>(lora.rank);
}

void JobBuilder::check_fine_tuning() {
  const TrainingSpec& training = spec_.training;
  if (model::is_list(spec_.model)) return;  // no key of these holds there
  for (const char* key : {"num_layers", "decoder_layers", "num_experts", "kv_lora_rank", "mlp"}) {
    if (!usable({joined_path("model", key)})) return;
  }
  constexpr std::string_view kFrozen = "training.frozen";
  constexpr std::string_view kTargets = "training.lora.targets";
  if (model::is_hybrid(spec_.model)) {
    constexpr std::string_view kWhy =
        "is not priced for models with model.layer_pattern: take it out, or price a model of "
        "attention layers alone";
    if (!training.frozen.empty()) error({kFrozen}, fmt::format("frozen {}", kWhy));
    if (training.lora.rank > 0) error({"training.lora.rank"}, fmt::format("rank {}", kWhy));
    return;
  }
  if (!training.frozen.empty() && usable({kFrozen, "training.lora.rank"})) {
    const std::string problem =
        training.lora.rank > 0
            ? "cannot stand beside lora: adapters freeze all other weights"
            : model::problem_of_frozen(training.frozen, model::block_count(spec_.model));
    if (!problem.empty()) error({kFrozen}, fmt::format("frozen {}", problem));
  }
  if (training.lora.rank == 0 || !usable({kTargets})) return;
  const std::string problem = model::problem_of_targets(spec_.model, training.lora.targets);
  if (!problem.empty()) error({kTargets}, fmt::format("targets {}", problem));
}

}  // namespace smp::jobfile
