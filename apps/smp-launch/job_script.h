#pragma once

#include <string>

#include "launch.h"

namespace smp {

// A bash script that starts the ranks of one host of the job by hand, without smp-launch, as
//   bash job.sh HOST
// and ends them all when one fails. Throws ConfigError for what it cannot say.
std::string shell_script(const PreparedJob& job);

// A script for sbatch: smp-launch in an allocation of the job's size. Throws ConfigError.
std::string sbatch_script(const PreparedJob& job);

}  // namespace smp
