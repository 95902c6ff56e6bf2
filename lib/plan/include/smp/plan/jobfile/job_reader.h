#pragma once

#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// Reads job files (YAML) into a JobSpec, strictly: whatever is unknown, given twice, missing,
// mistyped or in disagreement is an error with file, line, column, the line and a caret, and all
// errors come at once, sorted by place. The keys are in docs/job-file.md. Functions without state;
// safe from any thread.
namespace smp::jobfile {

struct JobSource {
  std::string path;  // as errors name it
  std::string text;
  // "model" or "cluster": of that section, what earlier sources say no longer counts, and this one
  // must have it.
  std::string replaces = {};
};

// Reads a file whole. Throws ConfigError if there is none, it cannot be read, is a folder or is
// larger than a job file can be (1 MiB).
JobSource load_job_source(const std::string& path);

// Several sources are one job: a later one overrides the earlier ones key by key (a model file,
// then a cluster file). `overrides` are "section.key=value" and come last; the last of equals
// counts. After reading, defaults that follow from other keys are filled in, and
// `parallel.sharding` holds what sharding, shard_optimizer_state and sharded_data_parallel_degree
// say together. Throws ConfigError with the text of all errors.
JobSpec read_job(const std::vector<JobSource>& sources,
                 const std::vector<std::string>& overrides = {});

}  // namespace smp::jobfile
