#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp/interchange/importers/imported.h"
#include "smp/plan/jobfile/job_source.h"

// Reads other programs' configurations into keys of a job file: a Hugging Face config.json, SMP
// dictionaries and the scripts that hold them, DeepSpeed JSON, a Megatron command line, accelerate
// YAML. Each format is one table of its keys (the job's key for each, or the reason for refusing
// it), which drives the reader, docs/interchange.md and the tests. Pure functions of (name, text);
// safe from any thread.
namespace smp::importers {

// The format of a text, by its content. Nothing for a plan or job file of smp, and for a text that
// shows no format. Throws ConfigError for files of programs that are known but not read.
std::optional<ForeignFormat> foreign_format(const jobfile::JobSource& source);

// The same, but every text without a format is a ConfigError that says what the text is.
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
