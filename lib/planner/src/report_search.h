#pragma once

#include <string>

#include "smp/planner/search.h"

// What the search adds to the report. Pure.
namespace smp {

// What binds the winner, what more of something would buy, where the other strategy differs.
std::string search_text(const SearchResult& result, bool explain);
// The front of time and memory, where it was asked for.
std::string pareto_text(const SearchResult& result);

}  // namespace smp
