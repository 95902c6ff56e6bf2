#pragma once

#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "local_rates.h"
#include "smp/interchange/importers/job_of_files.h"
#include "smp/plan/jobfile/job_source.h"
#include "smp/plan/spec/plan.h"

namespace smp {

// A job that no layout fits, where a plan was needed: ends with ExitCode::kNoFeasiblePlan.
class NoFeasiblePlan : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a file of a command line holds.
using PlannableFile = std::variant<JobSpec, Plan>;

// Reads a job file, a plan, or a file of another program: the one place where a path becomes a job,
// for every command that takes any of them. `more` has the further files of the same job, and the
// options under which they are read. `warnings` get those of foreign files. `source` is the file as
// it was read, also if this throws ConfigError.
PlannableFile read_plannable(const std::string& path, jobfile::JobSource& source, LocalRates& local,
                             std::vector<std::string>& warnings, importers::AnyFiles more = {});

// The plan that the file holds, or that smp-plan chooses for it when it is a job. Throws
// ConfigError, or NoFeasiblePlan.
Plan plan_of_file(const std::string& path);

}  // namespace smp
