#pragma once

#include <functional>
#include <string>
#include <vector>

#include "smp/launcher/launch/check.h"
#include "smp/launcher/request/prepared_job.h"

namespace smp::launch {

struct DryRunResult {
  bool ok = true;
  std::string text;    // the ranks, one JSON object, or the job as another launcher takes it
  std::string checks;  // for people, the verdict last: for standard error
};

// Prints the checks of the job. kRanks and kJson add each rank's coordinates, environment and
// command. The other forms write the job as a script or a manifest, and throw ConfigError for the
// first check that does not hold. `checks_of_job` makes the checks. Equal input gives equal text.
DryRunResult dry_run(const request::PreparedJob& job,
                     const std::function<std::vector<Check>()>& checks_of_job);

}  // namespace smp::launch
