#pragma once

#include <string>

namespace smp {
struct Plan;
}

namespace smp::run {

// What a person wants to know at the end of a run, in a dozen lines: the layout and why, loss first
// -> last, speed and memory beside what the plan predicted, and where the results lie. Reads
// <run_dir>/report.json; throws ConfigError when that is missing or lacks something.
std::string run_summary(const Plan& plan, const std::string& run_dir);

}  // namespace smp::run
