#pragma once

#include <string>
#include <utility>
#include <vector>

#include "smp/plan/jobfile/job_source.h"
#include "smp/plan/spec/job_spec.h"

// The outputs of the one table of job keys: a job written as YAML, the JSON Schema for editors, and
// the reference page. Pure; safe from any thread.
namespace smp::jobfile {

// Every key with its value, in the order of the table. An open key is written `auto`. read_job()
// gives the same spec back. Each line is indented by `indent` blanks.
std::string write_job_yaml(const JobSpec& spec, int indent = 0);

// A job file to start from: every key with its meaning as a comment; those of `given` (path and
// value, as YAML) are set, the others are commented out and show their defaults. `cluster` is the
// name of a known cluster, or empty for a map of keys.
std::string job_template(const std::vector<std::pair<std::string, std::string>>& given,
                         const std::string& cluster);

// The keys and values that a job file sets, in its order; values as YAML on one line. Throws
// ConfigError for a text that is not YAML.
std::vector<std::pair<std::string, std::string>> settings_of(const JobSource& source);

// JSON Schema draft-07 (the newest that yaml-language-server takes).
std::string job_schema();

// The text of docs/job-file.md.
std::string job_reference_markdown();

// The list of layers as a job file writes it, on one line.
std::string layer_list_text(const std::vector<OperatorSpec>& operators);

}  // namespace smp::jobfile
