#pragma once

#include <vector>

#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/request/prepared_job.h"

namespace smp::request {

// Where the ranks of a job run, and the GPUs that each is to see, by rank, as far as it is known
// without asking any host. Throws ConfigError where --visible-gpus cannot be honoured.
std::vector<environment::RankPlace> planned_places(const PreparedJob& job);

// What --env and --visible-gpus say of GPUs beside gpu= and the plan, and would be lost, or cannot
// be honoured. Throws ConfigError.
void check_gpus(const PreparedJob& job);

}  // namespace smp::request
