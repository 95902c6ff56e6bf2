#pragma once

#include <string>

#include "launch.h"

namespace smp {

struct DryRunResult {
  bool ok = true;
  std::string text;  // for people, or one JSON object
};

// All checks of the job, and each rank's coordinates, environment and command. What is drawn at the
// start (port, job id) is named, not drawn, so that equal input gives equal text; the key is left
// out.
DryRunResult dry_run(const PreparedJob& job);

}  // namespace smp
