#pragma once

#include <string>

namespace smp::run {

// What smp-launch --status RUN prints. Throws ConfigError where there is no such run.
std::string run_status_of(const std::string& run_dir);

}  // namespace smp::run
