#pragma once

#include <string>

#include "smp/plan/jobfile/model_catalog.h"
#include "smp/plan/spec/job_spec.h"

// What the files of the table of published models say (model_catalog.h). Pure; any thread.
namespace smp::jobfile {

// The number of parameters in the file's first comment.
double published_parameters(const NamedModel& model);
// "https://huggingface.co/... config.json"
std::string source_of(const NamedModel& model);
// The lines of the section `model`, ready to be copied into a job file.
std::string model_section(const NamedModel& model);
// The job that the file alone describes.
JobSpec spec_of(const NamedModel& model);

// The text of docs/models.md.
std::string models_markdown();

}  // namespace smp::jobfile
