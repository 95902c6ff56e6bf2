#include "smp/launcher/launch/build_only.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "make_launch_job.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/launch/programs.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/env/environment.h"

namespace smp::launch {

void build_only(const request::PreparedJob& job) {
  const int rank = *job.request.build_only;
  if (rank >= job.world_size) {
    throw ConfigError(
        fmt::format("--build-only={}: the plan has ranks 0 to {}", rank, job.world_size - 1));
  }
  find_worker(job.command.front());
  const std::vector<std::string> inherited = inherited_environment(job);
  const std::vector<std::string> variables = environment::merged_environment(
      inherited,
      {fmt::format("{}={}", env::kRank, rank), fmt::format("{}={}", env::kPlan, job.request.plan),
       fmt::format("{}=1", env::kBuildOnly)});
  std::vector<char*> environment;
  for (const std::string& variable : variables) {
    environment.push_back(const_cast<char*>(variable.c_str()));
  }
  environment.push_back(nullptr);
  std::string command = job.command.front();
  char* const words[] = {command.data(), nullptr};
  ::execve(command.c_str(), words, environment.data());
  throw ConfigError(fmt::format("cannot start '{}': {}", command, strerror(errno)));
}

}  // namespace smp::launch
