#pragma once

#include <string>

#include "smp/planner/search/search_result.h"

// What the search adds to the report. Pure.
namespace smp::report {

// What more of something would buy, and where the other strategy differs.
std::string search_text(const search::SearchResult& result);
// The front of time and memory, where it was asked for.
std::string pareto_text(const search::SearchResult& result);

}  // namespace smp::report
