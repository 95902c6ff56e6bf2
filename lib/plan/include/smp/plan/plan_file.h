#pragma once

#include <string>

#include "smp/plan/plan.h"

// Plans as files. Pure but for read_plan; safe from any thread.
namespace smp {

// The same plan gives the same bytes. The text carries a format version and a hash of its content.
std::string write_plan(const Plan& plan);

// Throws ConfigError with file:line:column for text that is no plan of this version, that was
// edited after it was written (hash), or that lacks something.
Plan parse_plan(const std::string& path, const std::string& text);
Plan read_plan(const std::string& path);

}  // namespace smp
