#pragma once

#include <stdexcept>
#include <string>

#include "smp/interchange/importers/job_of_files.h"
#include "smp/plan/spec/plan.h"

namespace smp {

// A job that no layout fits, where a plan was needed: ends with ExitCode::kNoFeasiblePlan.
class NoFeasiblePlan : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The plan that the file holds, or that smp-plan chooses for the job that it describes: a job file,
// or a file of another program. `more` has the further files of the same job, and the options under
// which they are read. Prints the warnings of foreign files. Throws ConfigError, or NoFeasiblePlan.
Plan plan_of_file(const std::string& path, importers::AnyFiles more = {});

}  // namespace smp
