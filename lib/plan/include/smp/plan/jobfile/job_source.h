#pragma once

#include <string>

// One file of a job, as it is read. Functions without state; any thread.
namespace smp::jobfile {

struct JobSource {
  std::string path;  // as errors name it
  std::string text;
  // "model" or "cluster": this source must have that section, and replaces the section of earlier
  // sources.
  std::string replaces = {};
};

// Reads a file whole. Throws ConfigError if the file is missing, unreadable, a folder, or larger
// than a job file can be (1 MiB).
JobSource load_job_source(const std::string& path);

}  // namespace smp::jobfile
