#pragma once

#include <string>
#include <vector>

#include "smp/planner/search/search_result.h"

// The lines that every report begins with. Pure.
namespace smp::report {

// "pipeline 2 x tensor 1 x data 4 (shard 4 x replica 1); sharding gradients; ...".
std::string layout_line(const Plan& plan);

// What was chosen, whether it fits and by how much, what a step takes, what binds, the next best
// layout, and whether this engine runs it: ten lines at most.
std::string summary_text(const search::SearchResult& result);

// What keeps this version's engine from running the plan, one line each.
std::vector<std::string> lacks_of_engine(const Plan& plan);

}  // namespace smp::report
