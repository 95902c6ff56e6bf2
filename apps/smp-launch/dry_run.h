#pragma once

#include <string>

#include "launch.h"

namespace smp {

struct DryRunResult {
  bool ok = true;
  std::string text;    // the ranks, one JSON object, or the job as another launcher takes it
  std::string checks;  // for people, the verdict last: for standard error
};

// All checks of the job; with kRanks and kJson each rank's coordinates, environment and command; or
// the job as a script or a manifest, then ConfigError for the first check that does not hold. Equal
// input gives equal text.
DryRunResult dry_run(const PreparedJob& job);

}  // namespace smp
