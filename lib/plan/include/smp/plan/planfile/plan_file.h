#pragma once

#include <string>

#include "smp/plan/spec/plan.h"

// Plans as files. Pure except read_plan(); safe from any thread.
namespace smp::planfile {

// The same plan gives the same bytes. The text carries a format version and a hash of its content.
std::string write_plan(const Plan& plan);

// Throws ConfigError with file:line:column if the text is not a plan of this version, was edited
// after it was written (hash), or lacks something.
Plan parse_plan(const std::string& path, const std::string& text);
Plan read_plan(const std::string& path);

}  // namespace smp::planfile
