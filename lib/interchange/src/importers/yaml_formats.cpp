#include "importers/yaml_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

#include "importers/megatron_arguments.h"

namespace smp::importers {
namespace {

using Words = std::initializer_list<std::string_view>;

size_t keys_among(const text::YamlNode& map, Words keys) {
  return static_cast<size_t>(
      std::ranges::count_if(keys, [&](const auto key) { return map.find(key) != nullptr; }));
}

bool holds(const text::YamlNode& root, std::string_view section, Words keys) {
  const text::YamlEntry* entry = root.find(section);
  return entry != nullptr && keys_among(entry->value, keys) > 0;
}

// ConfigContainer of Megatron Bridge, a recipe of NeMo 2, or NeMo 1's file.
bool is_nemo(const text::YamlNode& root) {
  const size_t sections =
      keys_among(root, {"train", "ddp", "dist", "mixed_precision", "comm_overlap", "rng",
                        "scheduler", "logger", "checkpoint", "dataset", "optimizer"});
  const bool trains =
      holds(root, "train", {"global_batch_size", "micro_batch_size", "train_iters"});
  const bool bridge = trains && (sections > 1 || keys_among(root, {"model", "recipe"}) > 0);
  const bool trainer =
      holds(root, "trainer", {"devices", "num_nodes", "precision", "max_steps", "accelerator"}) &&
      keys_among(root, {"model", "data"}) > 0;
  return bridge || trainer || root.find("exp_manager") != nullptr ||
         holds(root, "model", {"tensor_model_parallel_size", "pipeline_model_parallel_size"});
}

// [section] lines, as TOML has them.
bool has_section(std::string_view text, std::string_view name) {
  const std::string line = fmt::format("[{}]", name);
  for (size_t at = text.find(line); at != text.npos; at = text.find(line, at + 1)) {
    if (at == 0 || text[at - 1] == '\n') return true;
  }
  return false;
}

bool is_llama_factory(const text::YamlNode& root) {
  return root.find("model_name_or_path") != nullptr &&
         keys_among(root, {"stage", "finetuning_type", "template", "cutoff_len", "lora_rank",
                           "lora_target", "do_train"}) > 0;
}

bool is_axolotl(const text::YamlNode& root) {
  return root.find("base_model") != nullptr &&
         keys_among(root, {"datasets", "micro_batch_size", "sequence_len", "adapter"}) > 0;
}

bool is_automodel(const text::YamlNode& root) {
  return holds(root, "step_scheduler", {"global_batch_size", "local_batch_size"}) ||
         (holds(root, "model", {"pretrained_model_name_or_path"}) &&
          root.find("distributed") != nullptr);
}

}  // namespace

bool is_torchtitan_toml(std::string_view text) {
  return has_section(text, "parallelism") ||
         (has_section(text, "training") && has_section(text, "optimizer"));
}

bool is_accelerate_yaml(const text::YamlNode& root) {
  return keys_among(root, {"compute_environment", "distributed_type", "fsdp_config",
                           "deepspeed_config", "megatron_lm_config"}) > 0;
}

std::optional<ForeignFormat> yaml_format(const text::YamlNode& root) {
  if (root.kind != text::YamlNode::Kind::kMap) return std::nullopt;
  if (keys_among(root, {"smp_plan", "cluster", "training", "parallel"}) > 0) return std::nullopt;
  if (is_megatron_yaml(root)) return ForeignFormat::kMegatron;
  if (is_automodel(root)) return ForeignFormat::kAutomodel;
  if (is_llama_factory(root)) return ForeignFormat::kLlamaFactory;
  if (is_axolotl(root)) return ForeignFormat::kAxolotl;
  if (is_nemo(root)) return ForeignFormat::kNemo;
  return std::nullopt;
}

}  // namespace smp::importers
