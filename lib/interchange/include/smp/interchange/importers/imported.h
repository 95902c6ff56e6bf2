#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The foreign formats, and what a file of one of them says (import.h). Plain data.
namespace smp::importers {

enum class ForeignFormat {
  kHuggingFace,
  kSmpV1,
  kSmpV2,
  kDeepSpeed,
  kMegatron,
  kAccelerate,
  kSageMaker,
  kNemo,
  kTorchTitan,
  kLlamaFactory,
  kAxolotl,
  kAutomodel
};
inline constexpr int kForeignFormats = 12;
std::string_view name_of(ForeignFormat format);   // the word of --from: "hf", "smp-v1", ...
std::string_view title_of(ForeignFormat format);  // for people: "Hugging Face config.json"
std::optional<ForeignFormat> foreign_format_named(std::string_view name);

// One key of a job file, as a foreign file sets it.
struct ImportedKey {
  std::string path;      // "model.hidden_size"
  std::string value;     // YAML on one line
  std::string origin;    // what it was there: "n_embd", "zero_optimization.stage = 3"
  bool assumed = false;  // the program's own default: what another file says counts instead
};

// The content of a foreign file. Warnings need the user's attention: unknown keys, and known ones
// that a job file cannot express. Notes tell which values follow from absent keys.
struct Imported {
  ForeignFormat format = ForeignFormat::kHuggingFace;
  std::string file;
  std::vector<ImportedKey> keys;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
  std::vector<std::string> ignored;  // known keys that no plan depends on
  std::string unknown_model;         // the warning about a model that it names, and smp lacks
  std::vector<std::string> open;     // keys of a job that the file leaves to a script ("auto")

  const ImportedKey* find(std::string_view path) const;
  void assume(std::string_view path);  // a key of the file becomes a default of its program's
};

// What the reader of one file may know from other files of the same call, or from a command line.
struct ImportContext {
  std::optional<int64_t> num_layers;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> max_positions;
  std::optional<int64_t> hosts;
  std::optional<int64_t> processes_per_host;
  // Of the cluster that the command line names: they count where nothing else gives the number.
  std::optional<int64_t> cluster_hosts;
  std::optional<int64_t> cluster_processes_per_host;

  bool has_deepspeed = false;  // a DeepSpeed file is read in the same call
  std::string recipe;          // of NeMo or Megatron Bridge, that the file's keys override

  std::optional<int64_t> world() const;  // ranks
};

}  // namespace smp::importers
