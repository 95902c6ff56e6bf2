#include "smp/planner/choice/choice_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "smp/plan/spec/job_names.h"

namespace smp::choice {

std::string sharding_words(const LayoutChoice& choice) {
  std::string words = "no sharding";
  if (choice.sharding != Sharding::kNone) {
    const bool over_context = choice.shard == 1 && choice.context > 1;
    words = fmt::format("{} sharded over {}", name_of(choice.sharding),
                        over_context ? "the context ranks" : std::to_string(choice.shard));
  }
  if (choice.offload_activations) words += ", activations offloaded";
  if (choice.offload_optimizer) words += ", optimizer offloaded";
  if (choice.offload_parameters) words += ", parameters offloaded";
  return words;
}

std::string recompute_words(const LayoutChoice& choice) {
  switch (choice.recompute) {
    case Recompute::kNone: return "no recompute";
    case Recompute::kSelective: return "recompute selective";
    case Recompute::kFull: break;
  }
  if (choice.recompute_layers < 0) return "recompute full";
  return fmt::format("recompute {} layers of a stage", choice.recompute_layers);
}

std::string schedule_words(const LayoutChoice& choice) {
  std::string words(name_of(choice.schedule));
  if (choice.virtual_stages > 1) words += fmt::format(" {}", choice.virtual_stages);
  return words;
}

std::string degree_words(const LayoutChoice& choice) {
  std::string words = fmt::format("tensor {}, pipeline {}", choice.tensor, choice.pipeline);
  if (choice.context > 1) words += fmt::format(", context {}", choice.context);
  if (choice.exchange > 1) words += fmt::format(" (all-to-all over {})", choice.exchange);
  if (choice.expert > 1) words += fmt::format(", expert {}", choice.expert);
  if (choice.expert > 1 && choice.expert_tensor > 1) {
    words += fmt::format(" x tensor {}", choice.expert_tensor);
  }
  return words;
}

std::string describe(const LayoutChoice& choice) {
  std::string words = degree_words(choice);
  if (choice.pipeline > 1) words += fmt::format(" ({})", schedule_words(choice));
  if (choice.sequence_parallel) words += ", sequence parallel";
  words += fmt::format(", {}, micro batch {} x {}, {}", sharding_words(choice), choice.micro_batch,
                       choice.microbatches, recompute_words(choice));
  if (choice.first_stage_layers > 0 || choice.last_stage_layers > 0) {
    words += fmt::format(", first stage {} and last stage {} layers", choice.first_stage_layers,
                         choice.last_stage_layers);
  }
  if (!choice.partition.empty()) {
    words += fmt::format(", partition {}", fmt::join(choice.partition.blocks(), " "));
  }
  if (is_spread(choice.placement)) {
    words += choice.tensor * choice.context == 1 ? ", placement spread" : ", stages placed apart";
  }
  return words;
}

}  // namespace smp::choice
