#pragma once

#include <functional>
#include <string>

#include "smp/launcher/request/prepared_job.h"

namespace smp::launch {

// One thing that has to hold before a rank is started. A launch stops at the first that does not; a
// dry run prints them all.
struct Check {
  std::string name;
  bool ok = true;
  std::string text;              // what was found, or what is wrong and what to do about it
  bool of_this_machine = false;  // looks at files that the job needs where it runs
  bool skipped = false;          // by the user's wish
};

// Runs `check`, which returns what it has found, and throws ConfigError or std::system_error with
// what is wrong.
Check run_check(const char* name, const std::function<std::string()>& check);

// Answers about a plan that this library cannot give: they take the planner and the reader of
// checkpoints. The program provides them.
class PlanChecks {
 public:
  virtual ~PlanChecks() = default;
  // Throws ConfigError for the first thing that does not hold for a plan's job.
  virtual void require(const request::PreparedJob& job) const = 0;
  // Whether the run that a job resumes has done all its steps. Throws ConfigError where its
  // checkpoint does not fit the plan.
  virtual bool is_complete(const request::PreparedJob& job) const = 0;
};

}  // namespace smp::launch
