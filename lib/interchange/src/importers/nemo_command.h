#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smp/interchange/importers/imported.h"
#include "smp/plan/text/diagnostics.h"
#include "smp/plan/text/yaml_tree.h"

// A line that starts a recipe: "nemo llm pretrain --factory llama3_8b trainer.num_nodes=2", or
// "torchrun ... run_recipe.py --recipe llama3_8b_pretrain_config model.context_parallel_size=1".
// Pure.
namespace smp::importers {

struct NemoOverride {
  std::string path;  // "trainer.num_nodes"
  text::Place place;
  text::YamlNode value;
};

struct NemoCommand {
  std::string recipe;
  text::Place recipe_place;
  std::vector<NemoOverride> overrides;
};

bool is_nemo_command(std::string_view text);

// Errors for values that the text does not give, and for several such lines.
NemoCommand read_nemo_command(std::string_view text, int source, text::Diagnostics& diagnostics,
                              const ImportContext& context, Imported& out);

}  // namespace smp::importers
