#pragma once

#include <string>
#include <string_view>

// How smp writes YAML: text that parse_yaml reads back as it was, the same bytes for the same
// input.
namespace smp::text {

// A text as a scalar: plain where nobody could take it for something else, else in double quotes.
std::string yaml_text(std::string_view text);

}  // namespace smp::text
