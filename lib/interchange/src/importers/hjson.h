#pragma once

#include <string>
#include <string_view>

namespace smp::importers {

// Hjson, which DeepSpeed reads, as JSON: its comments (#, // and /* */) and commas behind a last
// item are blanks, so that all else keeps its place. What else Hjson leaves out (quotes, commas) is
// JSON's to refuse.
std::string json_of_hjson(std::string_view text);

}  // namespace smp::importers
