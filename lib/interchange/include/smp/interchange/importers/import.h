#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/jobfile/job_reader.h"

// Reads what users have - a Hugging Face config.json, SMP dictionaries and the scripts that hold
// them, DeepSpeed JSON, a Megatron command line, accelerate YAML - into keys of a job file. Each
// format is one table of its keys (what each becomes, or why it cannot), which drives the reader,
// docs/interchange.md and the tests. Pure functions of (name, text); safe from any thread.
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

// What a foreign file says. Warnings are what a user must look at: unknown keys, and known ones
// that a job file cannot say. Notes say what follows from what is not there.
struct Imported {
  ForeignFormat format = ForeignFormat::kHuggingFace;
  std::string file;
  std::vector<ImportedKey> keys;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
  std::vector<std::string> ignored;  // known keys that no plan depends on

  const ImportedKey* find(std::string_view path) const;
};

// What the reader of one file may know from elsewhere: other files of the same call, a command
// line.
struct ImportContext {
  std::optional<int64_t> num_layers;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> hosts;
  std::optional<int64_t> processes_per_host;

  std::optional<int64_t> world() const;
};

// Which format a text is in, by its content. Throws ConfigError where that is not clear.
ForeignFormat recognise(const jobfile::JobSource& source);

// Throws ConfigError with the text of all errors, with places.
Imported import_source(const jobfile::JobSource& source, ForeignFormat format,
                       const ImportContext& context = {});

// Several files that describe one job (a model's config.json and its DeepSpeed JSON): recognised,
// or all of the format that `forced` names. Keys that disagree between files are an error.
std::vector<Imported> import_sources(const std::vector<jobfile::JobSource>& sources,
                                     std::optional<ForeignFormat> forced,
                                     const ImportContext& context = {});

// The job file that says what `files` say, with a comment that names each key's origin. It is read
// back by read_job before it is returned: what that refuses is a ConfigError. Without a model, the
// text begins with a comment that says so.
std::string imported_job_yaml(const std::vector<Imported>& files);

// A job file as sources for read_job: the file itself, after the model that its `model.hf_config`
// names (a config.json, relative to the job file), if it names one. One that `overrides` name
// ("model.hf_config=...", relative to the working directory) stands for the whole model instead.
std::vector<jobfile::JobSource> with_hf_model(const jobfile::JobSource& job,
                                              const std::vector<std::string>& overrides = {});

// The tables of docs/interchange.md that say what is read.
std::string import_reference_markdown();

}  // namespace smp::importers
