#pragma once

#include <string>
#include <vector>

namespace smp {

// smp-launch report RUN [--html FILE]: what a run measured beside what its plan predicted. Returns
// what goes to standard output. Throws UsageError, ConfigError; Information for --help.
std::string report_run(const std::vector<std::string>& words);

}  // namespace smp
