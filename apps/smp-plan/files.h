#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"

namespace smp {

// A job that no layout fits, where a plan was needed: ends with ExitCode::kNoFeasiblePlan.
class NoFeasiblePlan : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The plan that the file holds, or that smp-plan chooses for it when it is a job file. Throws
// ConfigError, or NoFeasiblePlan.
Plan plan_of_file(const std::string& path);

}  // namespace smp
