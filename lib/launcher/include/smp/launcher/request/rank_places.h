#pragma once

#include <vector>

#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/request/prepared_job.h"

namespace smp::request {

// Where the ranks of a job run, and the GPUs that each is to see, by rank, as far as it is known
// without asking any host. Throws ConfigError where --visible-gpus cannot be honoured.
std::vector<environment::RankPlace> planned_places(const PreparedJob& job);

// Throws ConfigError where --env, --visible-gpus, gpu= of a host and the plan contradict each other
// about GPUs.
void check_gpus(const PreparedJob& job);

}  // namespace smp::request
