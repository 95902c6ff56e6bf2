#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp/interchange/importers/imported.h"
#include "smp/plan/jobfile/job_source.h"
#include "smp/plan/spec/job_spec.h"

// The job that files of any kind describe together: job and cluster files of smp, and all that
// import.h reads. Reads the files that they name; safe from any thread.
namespace smp::importers {

struct AnyFiles {
  std::vector<jobfile::JobSource> sources;
  std::optional<ForeignFormat> format;  // of the foreign files; absent: by their content
  std::optional<int64_t> hosts;
  std::optional<int64_t> processes_per_host;
  std::string recipe;   // as in ImportContext
  std::string cluster;  // a known cluster or a file; empty: the files name it
};

struct JobOfFiles {
  JobSpec job;
  std::vector<std::string> warnings;  // of the foreign files, as in Imported
};

// Foreign files are imported together. Files of smp come after them and override them key by key.
// Throws ConfigError, also if foreign files alone give no model, or no accelerator.
JobOfFiles job_of_files(const AnyFiles& files);

}  // namespace smp::importers
