#include <fmt/format.h>

#include "jobfile/job_builder.h"
#include "jobfile/key_hint.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/text/yaml_tree.h"

// What the keys of a hybrid must say together.
namespace smp::jobfile {

void JobBuilder::check_hybrid() {
  const ModelSpec& model = spec_.model;
  if (!model::is_hybrid(model)) return;
  const std::string& pattern = model.layer_pattern;
  if (const size_t at = pattern.find_first_not_of("M*-E"); at != std::string::npos) {
    return error({"model.layer_pattern"},
                 fmt::format("letter {} of layer_pattern is {}: expected M, *, - or E", at + 1,
                             text::quoted_for_message(pattern.substr(at, 1))));
  }
  if (usable({"model.num_layers"}) && static_cast<int64_t>(pattern.size()) != model.num_layers) {
    error(
        {"model.layer_pattern"},
        fmt::format("layer_pattern has {} letters, but num_layers is {}: write one for each layer",
                    pattern.size(), model.num_layers));
  }
  const bool has_experts = pattern.find(model::kExpertsLetter) != std::string::npos;
  if (has_experts != (model.num_experts > 0) && usable({"model.num_experts"})) {
    error({"model.layer_pattern"}, has_experts ? "E in layer_pattern needs num_experts"
                                               : "num_experts needs E in layer_pattern");
  }
  const auto beside = [&](bool is_set, const char* key) {
    if (!is_set) return;
    error(
        {joined_path("model", key)},
        fmt::format("{} cannot be set beside layer_pattern, which says what each layer is: remove "
                    "it",
                    key));
  };
  beside(model.first_dense_layers > 0, "first_dense_layers");
  beside(model.moe_layer_period > 1, "moe_layer_period");
  beside(model.num_mtp_layers > 0, "num_mtp_layers");
  beside(model.parallel_residual, "parallel_residual");
  beside(model.kv_lora_rank > 0, "kv_lora_rank");
  if (pattern.find(model::kMambaLetter) == std::string::npos) return;
  std::vector<std::string> missing;
  for (const char* key : {"mamba_heads", "mamba_head_dim", "mamba_state_dim", "mamba_groups"}) {
    const std::string path = joined_path("model", key);
    if (!usable({path})) return;
    if (!given(path)) missing.emplace_back(key);
  }
  if (!missing.empty()) {
    error({"model.layer_pattern"}, fmt::format("M in layer_pattern needs {}", comma_list(missing)));
  } else if (model.mamba_heads % model.mamba_groups != 0) {
    error({"model.mamba_groups"},
          fmt::format("mamba_heads ({}) is not divisible by mamba_groups ({})", model.mamba_heads,
                      model.mamba_groups));
  }
}

}  // namespace smp::jobfile
