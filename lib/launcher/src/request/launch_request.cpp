#include "smp/launcher/request/launch_request.h"

namespace smp::request {

bool is_manifest(DryRun form) {
  return form == DryRun::kJobset || form == DryRun::kMpijob || form == DryRun::kTrainjob ||
         form == DryRun::kLws;
}

bool cluster_restarts(const LaunchRequest& request) {
  return request.dry_run == DryRun::kJobset || request.dry_run == DryRun::kTrainjob ||
         (request.dry_run == DryRun::kMpijob && request.resume == kResumeIfAny);
}

}  // namespace smp::request
