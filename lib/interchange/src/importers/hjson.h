#pragma once

#include <string>
#include <string_view>

namespace smp::importers {

// Hjson, which DeepSpeed reads, as JSON. Comments (#, // and /* */) and commas behind a last item
// become blanks, so that all other text keeps its place. Hjson's other omissions (quotes, commas)
// are refused by the JSON reader.
std::string json_of_hjson(std::string_view text);

}  // namespace smp::importers
