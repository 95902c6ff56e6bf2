#include "importers/other_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace smp::importers {
namespace {

bool has_any_key(const text::YamlNode& node, std::initializer_list<std::string_view> keys) {
  return node.kind == text::YamlNode::Kind::kMap &&
         std::ranges::any_of(keys, [&](const auto key) { return node.find(key) != nullptr; });
}

// The file that a key names, for advice; `otherwise` where it names none.
std::string file_at(const text::YamlNode& root, std::string_view key, std::string_view otherwise) {
  const text::YamlEntry* entry = root.find(key);
  const bool named = entry != nullptr && entry->value.kind == text::YamlNode::Kind::kScalar &&
                     entry->value.text.find('.') != std::string::npos;
  return named ? entry->value.text : std::string(otherwise);
}

constexpr std::string_view kWrite = "write a job file (start with smp-plan init)";

}  // namespace

std::string other_format(const text::YamlNode& root) {
  if (root.kind != text::YamlNode::Kind::kMap) return "";
  if (has_any_key(root,
                  {"device_train_microbatch_size", "global_train_batch_size", "max_duration"}) &&
      has_any_key(root, {"max_seq_len", "fsdp_config", "train_loader", "parallelism_config"})) {
    return fmt::format(
        "a configuration of Composer or LLM Foundry, which smp does not import: {}: "
        "device_train_microbatch_size is training.micro_batch, global_train_batch_size is "
        "training.global_batch, max_seq_len is training.sequence_length, and "
        "fsdp_config.sharding_strategy FULL_SHARD is parallel.sharding: parameters",
        kWrite);
  }
  if (has_any_key(root, {"per_device_train_batch_size"})) {
    return fmt::format(
        "arguments of a Hugging Face Trainer, which smp does not import: import the model's "
        "config.json with {}; per_device_train_batch_size is training.micro_batch, "
        "gradient_accumulation_steps is training.microbatches",
        file_at(root, "deepspeed", "its DeepSpeed or accelerate file"));
  }
  if (has_any_key(root, {"pipe_parallel_size", "pipe-parallel-size"})) {
    return fmt::format(
        "a GPT-NeoX configuration, which smp does not import: {}: pipe_parallel_size is "
        "parallel.pipeline_parallel_degree, model_parallel_size is parallel.tensor_parallel_degree",
        kWrite);
  }
  if (has_any_key(root, {"apiVersion"}) && has_any_key(root, {"kind"})) {
    return "a Kubernetes manifest, which smp does not import: import the command of the manifest "
           "as a separate text";
  }
  return "";
}

std::string python_program(std::string_view text) {
  const std::string_view all = text;
  // The first line that says something.
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos || line[begin] == '#') continue;
    const bool from = line.starts_with("from ") && line.find(" import ") != line.npos;
    if (!from && !line.starts_with("import ") && !line.starts_with("\"\"\"")) return "";
    break;
  }
  if (all.find("torchtitan") != all.npos) {
    return "a Python program (a configuration of torchtitan), which smp does not import: print it "
           "with scripts/dump-torchtitan-config, and import the JSON";
  }
  if (all.find("nemo") != all.npos || all.find("megatron.bridge") != all.npos) {
    return fmt::format(
        "a Python program (a recipe of NeMo or Megatron Bridge), which smp does not import: import "
        "the configuration that its run prints or saves, or a line with --recipe or --factory, or "
        "{}",
        kWrite);
  }
  return fmt::format(
      "a Python program, which smp does not import: import the program's command line, or {}",
      kWrite);
}

}  // namespace smp::importers
