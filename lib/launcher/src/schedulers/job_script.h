#pragma once

#include <string>

#include "smp/launcher/request/prepared_job.h"

namespace smp::schedulers {

// A bash script that starts the ranks of one host of the job by hand, without smp-launch, as
//   bash job.sh HOST
// and ends them all when one fails. Throws ConfigError for what it cannot say.
std::string shell_script(const request::PreparedJob& job);

// A script for sbatch: smp-launch in an allocation of the job's size. Throws ConfigError.
std::string sbatch_script(const request::PreparedJob& job);

}  // namespace smp::schedulers
