#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smp::importers {

// A published recipe: the values that its function sets, in the sections of its own YAML.
struct NemoRecipe {
  std::string_view name;  // "llama3_70b_pretrain_config" of Megatron Bridge, "llama3_70b" of NeMo 2
  std::string_view model;   // its repository on the Hugging Face hub
  std::string_view values;  // YAML
};

const std::vector<NemoRecipe>& nemo_recipes();

// Null if there is none of that name.
const NemoRecipe* find_nemo_recipe(std::string_view name);
// "unknown recipe 'x', did you mean 'y'? There are ..."
std::string unknown_nemo_recipe(std::string_view name);

}  // namespace smp::importers
