#pragma once

namespace smp {

// What every smp program returns. Otherwise smp-launch returns the code of the first failing rank:
// its exit code, or 128 + signal.
enum class ExitCode {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kBadConfig = 3,
  kNoFeasiblePlan = 4,
  kTightPlan = 5,     // smp-plan check: it fits, but the usual prediction error exceeds the limit
  kPlanWarnings = 6,  // smp-plan check --fail-on warning
  kCheckpointedOnRequest = 75,
  kTimeout = 124,
  kLauncherError = 125,
  kInterrupted = 130,
};

}  // namespace smp
