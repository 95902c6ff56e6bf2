#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/jobfile/job_reader.h"

// Reads other programs' configurations into keys of a job file: a Hugging Face config.json, SMP
// dictionaries and the scripts that hold them, DeepSpeed JSON, a Megatron command line, accelerate
// YAML. Each format is one table of its keys (the job's key for each, or the reason for refusing
// it), which drives the reader, docs/interchange.md and the tests. Pure functions of (name, text);
// safe from any thread.
namespace smp::importers {

enum class ForeignFormat {
  kHuggingFace,
  kSmpV1,
  kSmpV2,
  kDeepSpeed,
  kMegatron,
  kAccelerate,
  kSageMaker
};
inline constexpr int kForeignFormats = 7;
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

  const ImportedKey* find(std::string_view path) const;
};

// What the reader of one file may know from other files of the same call, or from a command line.
struct ImportContext {
  std::optional<int64_t> num_layers;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> hosts;
  std::optional<int64_t> processes_per_host;

  std::optional<int64_t> world() const;
};

// The format of a text, by its content. Throws ConfigError if this is unclear.
ForeignFormat recognise(const jobfile::JobSource& source);

// Throws ConfigError with the text of all errors, with places.
Imported import_source(const jobfile::JobSource& source, ForeignFormat format,
                       const ImportContext& context = {});

// Reads several files that describe one job (a model's config.json and its DeepSpeed JSON). Their
// formats are recognised, or `forced` names the format of all. Keys that disagree between files are
// an error.
std::vector<Imported> import_sources(const std::vector<jobfile::JobSource>& sources,
                                     std::optional<ForeignFormat> forced,
                                     const ImportContext& context = {});

// The job file for `files`, with a comment that names each key's origin. It is read back by
// read_job() before it is returned, whose errors are ConfigErrors. If the files have no model, the
// text begins with a comment that says so.
std::string imported_job_yaml(const std::vector<Imported>& files);

// A job file as sources for read_job(): the file itself, after the model of its `model.hf_config`
// (a config.json, relative to the job file), if it names one. A `model.hf_config` among
// `overrides`, relative to the working directory, replaces the whole model instead.
std::vector<jobfile::JobSource> with_hf_model(const jobfile::JobSource& job,
                                              const std::vector<std::string>& overrides = {});

// The tables of docs/interchange.md: every key that is read.
std::string import_reference_markdown();

}  // namespace smp::importers
