#include "importers/nemo_recipes.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/text/suggest.h"

// Sources: Megatron Bridge (2026-08), src/megatron/bridge/recipes/*/h100 and recipes/common.py;
// NeMo 2.5 (2025-09), nemo/collections/llm/recipes.
namespace smp::importers {

const std::vector<NemoRecipe>& nemo_recipes() {
  static const std::vector<NemoRecipe> kRecipes = {
      {"llama2_7b_pretrain_config", "meta-llama/Llama-2-7b-hf",
       "model: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 1, seq_length: 4096}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama32_1b_pretrain_config", "meta-llama/Llama-3.2-1B",
       "model: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 1, seq_length: 8192}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama32_3b_pretrain_config", "meta-llama/Llama-3.2-3B",
       "model: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 1, seq_length: 8192}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama3_8b_pretrain_config", "meta-llama/Meta-Llama-3-8B",
       "model: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 2, seq_length: 8192}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama3_8b_16k_pretrain_config", "meta-llama/Meta-Llama-3-8B",
       "model: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2, "
       "context_parallel_size: 2, sequence_parallel: true, seq_length: 16384}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama3_8b_64k_pretrain_config", "meta-llama/Meta-Llama-3-8B",
       "model: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2, "
       "context_parallel_size: 4, sequence_parallel: true, seq_length: 65536}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama3_8b_128k_pretrain_config", "meta-llama/Meta-Llama-3-8B",
       "model: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2, "
       "context_parallel_size: 8, sequence_parallel: true, seq_length: 131072}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama3_70b_pretrain_config", "meta-llama/Meta-Llama-3-70B",
       "model: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 4, "
       "context_parallel_size: 2, virtual_pipeline_model_parallel_size: 5, "
       "sequence_parallel: true, seq_length: 8192}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama3_70b_16k_pretrain_config", "meta-llama/Meta-Llama-3-70B",
       "model: {tensor_model_parallel_size: 8, pipeline_model_parallel_size: 2, "
       "context_parallel_size: 2, sequence_parallel: true, seq_length: 16384}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama3_70b_64k_pretrain_config", "meta-llama/Meta-Llama-3-70B",
       "model: {tensor_model_parallel_size: 8, pipeline_model_parallel_size: 4, "
       "context_parallel_size: 8, sequence_parallel: true, seq_length: 65536}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama31_8b_pretrain_config", "meta-llama/Meta-Llama-3.1-8B",
       "model: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 2, seq_length: 8192}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama31_70b_pretrain_config", "meta-llama/Meta-Llama-3.1-70B",
       "model: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 4, "
       "context_parallel_size: 2, virtual_pipeline_model_parallel_size: 5, "
       "sequence_parallel: true, seq_length: 131072}\n"
       "train: {global_batch_size: 512, micro_batch_size: 1, train_iters: 1168251}\n"},
      {"llama2_7b", "meta-llama/Llama-2-7b-hf",
       "trainer: {num_nodes: 1, devices: 8, max_steps: 1168251, strategy: "
       "{tensor_model_parallel_size: 2, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 1}}\n"
       "data: {seq_length: 4096, global_batch_size: 512, micro_batch_size: 1}\n"},
      {"llama3_8b", "meta-llama/Meta-Llama-3-8B",
       "trainer: {num_nodes: 1, devices: 8, max_steps: 1168251, strategy: "
       "{tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 2}}\n"
       "data: {seq_length: 8192, global_batch_size: 512, micro_batch_size: 1}\n"},
      {"llama3_70b", "meta-llama/Meta-Llama-3-70B",
       "trainer: {num_nodes: 4, devices: 8, max_steps: 1168251, strategy: "
       "{tensor_model_parallel_size: 4, pipeline_model_parallel_size: 4, "
       "context_parallel_size: 2, virtual_pipeline_model_parallel_size: 5, "
       "sequence_parallel: true}}\n"
       "data: {seq_length: 8192, global_batch_size: 512, micro_batch_size: 1}\n"},
      {"llama31_8b", "meta-llama/Meta-Llama-3.1-8B",
       "trainer: {num_nodes: 1, devices: 8, max_steps: 1168251, strategy: "
       "{tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 2}}\n"
       "data: {seq_length: 8192, global_batch_size: 512, micro_batch_size: 1}\n"},
      {"llama31_70b", "meta-llama/Meta-Llama-3.1-70B",
       "trainer: {num_nodes: 4, devices: 8, max_steps: 1168251, strategy: "
       "{tensor_model_parallel_size: 4, pipeline_model_parallel_size: 4, "
       "context_parallel_size: 2, virtual_pipeline_model_parallel_size: 5, "
       "sequence_parallel: true}}\n"
       "data: {seq_length: 8192, global_batch_size: 512, micro_batch_size: 1}\n"},
      {"llama32_1b", "meta-llama/Llama-3.2-1B",
       "trainer: {num_nodes: 1, devices: 8, max_steps: 1168251, strategy: "
       "{tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 1}}\n"
       "data: {seq_length: 8192, global_batch_size: 512, micro_batch_size: 1}\n"},
      {"mistral_7b", "mistralai/Mistral-7B-v0.1",
       "trainer: {num_nodes: 1, devices: 8, max_steps: 100, strategy: "
       "{tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 2}}\n"
       "data: {seq_length: 4096, global_batch_size: 512, micro_batch_size: 1}\n"},
      {"mixtral_8x7b", "mistralai/Mixtral-8x7B-v0.1",
       "trainer: {num_nodes: 8, devices: 8, max_steps: 1168251, strategy: "
       "{tensor_model_parallel_size: 1, pipeline_model_parallel_size: 4, "
       "context_parallel_size: 1, virtual_pipeline_model_parallel_size: 8, "
       "expert_model_parallel_size: 8}}\n"
       "data: {seq_length: 4096, global_batch_size: 512, micro_batch_size: 1}\n"},
      {"mixtral_8x22b", "mistralai/Mixtral-8x22B-v0.1",
       "trainer: {num_nodes: 16, devices: 8, max_steps: 1168251, strategy: "
       "{tensor_model_parallel_size: 2, pipeline_model_parallel_size: 4, "
       "context_parallel_size: 2, virtual_pipeline_model_parallel_size: 14, "
       "expert_model_parallel_size: 8, sequence_parallel: true}}\n"
       "data: {seq_length: 4096, global_batch_size: 512, micro_batch_size: 1}\n"},
      {"qwen2_7b", "Qwen/Qwen2-7B",
       "trainer: {num_nodes: 1, devices: 8, max_steps: 300000, strategy: "
       "{tensor_model_parallel_size: 2, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 1}}\n"
       "data: {seq_length: 4096, global_batch_size: 32, micro_batch_size: 2}\n"},
      {"qwen3_8b", "Qwen/Qwen3-8B",
       "trainer: {num_nodes: 1, devices: 8, max_steps: 300000, strategy: "
       "{tensor_model_parallel_size: 4, pipeline_model_parallel_size: 1, "
       "context_parallel_size: 1}}\n"
       "data: {seq_length: 4096, global_batch_size: 32, micro_batch_size: 2}\n"},
      {"qwen3_30b_a3b", "Qwen/Qwen3-30B-A3B",
       "trainer: {num_nodes: 1, devices: 8, max_steps: 300000, strategy: "
       "{tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2, "
       "context_parallel_size: 1, expert_model_parallel_size: 4, sequence_parallel: true}}\n"
       "data: {seq_length: 4096, global_batch_size: 32, micro_batch_size: 2}\n"},
      {"gpt3_175b", "gpt3-175b",
       "trainer: {num_nodes: 64, devices: 8, max_steps: 1168251, strategy: "
       "{tensor_model_parallel_size: 4, pipeline_model_parallel_size: 8, "
       "context_parallel_size: 1, virtual_pipeline_model_parallel_size: 6, "
       "sequence_parallel: true}}\n"
       "data: {seq_length: 2048, global_batch_size: 2048, micro_batch_size: 2}\n"},
  };
  return kRecipes;
}

const NemoRecipe* find_nemo_recipe(std::string_view name) {
  const auto found = std::ranges::find(nemo_recipes(), name, &NemoRecipe::name);
  return found != nemo_recipes().end() ? &*found : nullptr;
}

std::string unknown_nemo_recipe(std::string_view name) {
  std::vector<std::string> names;
  std::string list;
  for (const NemoRecipe& recipe : nemo_recipes()) {
    names.emplace_back(recipe.name);
    list += (list.empty() ? "" : ", ") + names.back();
  }
  const auto near = text::nearest(std::string(name), names);
  return fmt::format(
      "unknown recipe '{}'{} Known are {}; for another, import the configuration that its run "
      "prints "
      "or saves",
      name, near ? fmt::format(", did you mean '{}'?", *near) : ".", list);
}

}  // namespace smp::importers
