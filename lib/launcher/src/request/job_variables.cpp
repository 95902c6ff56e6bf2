#include "smp/launcher/request/job_variables.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/launcher/run/run_folder.h"
#include "smp/plan/env/environment.h"

namespace smp::request {

environment::JobVariables job_variables(const PreparedJob& job, const run::RunFolder* folder) {
  environment::JobVariables variables;
  variables.world_size = job.world_size;
  variables.hosts = std::max(1, static_cast<int>(job.hosts.size()));
  if (folder != nullptr) variables.run_dir = folder->path();
  variables.resume = job.request.resume;
  variables.max_restarts = job.request.watch.restarts.most;
  return variables;
}

std::string comm_timeout_variable(std::chrono::milliseconds time) {
  return fmt::format("{}={:g}", env::kCommTimeout, static_cast<double>(time.count()) / 1000);
}

}  // namespace smp::request
