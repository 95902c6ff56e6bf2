#pragma once

#include <string>

#include "smp/plan/job_spec.h"

// What a job file looks like, from the one table of its keys: a job written as YAML, the JSON
// Schema for editors, and the reference page. Pure; safe from any thread.
namespace smp {

// Every key with its value, in the order of the table; what is open is written `auto`. read_job
// gives the same spec back. Each line is indented by `indent` blanks.
std::string write_job_yaml(const JobSpec& spec, int indent = 0);

// JSON Schema draft-07 (the newest that yaml-language-server takes).
std::string job_schema();

// The text of docs/job-file.md.
std::string job_reference_markdown();

}  // namespace smp
