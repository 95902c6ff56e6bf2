#pragma once

#include <string>
#include <vector>

#include "smp/plan/plan.h"

namespace smp {

// Writes `text` to `path` whole or not at all. Throws ConfigError with the reason.
void write_file(const std::string& path, const std::string& text);

// The plan that the file holds, or that smp-plan chooses for it when it is a job file. Throws
// ConfigError, also when nothing fits the job.
Plan plan_of_file(const std::string& path);

}  // namespace smp
