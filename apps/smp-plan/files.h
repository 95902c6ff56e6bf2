#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "smp/interchange/importers/job_of_files.h"
#include "smp/plan/spec/plan.h"

namespace smp {

// A job that no layout fits, where a plan was needed: ends with ExitCode::kNoFeasiblePlan.
class NoFeasiblePlan : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The plan that the one file holds, or that smp-plan chooses for the job that the files describe
// together, as `request` reads them (its sources are these files). Prints the warnings of foreign
// files. Throws ConfigError, or NoFeasiblePlan.
Plan plan_of_files(const std::vector<std::string>& paths, importers::AnyFiles request);
Plan plan_of_file(const std::string& path);

}  // namespace smp
