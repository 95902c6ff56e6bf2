#include "smp/interchange/importers/imported.h"

#include <algorithm>
#include <array>

#include "importers/product_of.h"

namespace smp::importers {
namespace {

struct FormatName {
  std::string_view word;
  std::string_view title;
};
constexpr std::array<FormatName, kForeignFormats> kNames = {{
    {"hf", "Hugging Face config.json"},
    {"smp-v1", "an SMP v1 dictionary"},
    {"smp-v2", "an SMP v2 dictionary"},
    {"deepspeed", "a DeepSpeed configuration"},
    {"megatron", "a Megatron command line"},
    {"accelerate", "an accelerate configuration"},
    {"sagemaker", "a SageMaker script"},
    {"nemo", "a configuration of NeMo or Megatron Bridge"},
    {"torchtitan", "a torchtitan configuration"},
    {"llama-factory", "a LLaMA-Factory configuration"},
    {"axolotl", "an axolotl configuration"},
    {"automodel", "a NeMo Automodel configuration"},
}};

}  // namespace

std::string_view name_of(ForeignFormat format) {
  return kNames.at(static_cast<size_t>(format)).word;
}
std::string_view title_of(ForeignFormat format) {
  return kNames.at(static_cast<size_t>(format)).title;
}

std::optional<ForeignFormat> foreign_format_named(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].word == name) return static_cast<ForeignFormat>(i);
  }
  return std::nullopt;
}

const ImportedKey* Imported::find(std::string_view path) const {
  const auto found = std::ranges::find(keys, path, &ImportedKey::path);
  return found != keys.end() ? &*found : nullptr;
}

void Imported::assume(std::string_view path) {
  for (ImportedKey& key : keys) {
    if (key.path == path) key.assumed = true;
  }
}

std::optional<int64_t> ImportContext::world() const {
  const auto of_hosts = hosts ? hosts : cluster_hosts;
  const auto of_each = processes_per_host ? processes_per_host : cluster_processes_per_host;
  if (!of_hosts || !of_each) return std::nullopt;
  return product_of({*of_hosts, *of_each});
}

}  // namespace smp::importers
