#pragma once

#include <string>
#include <string_view>

// Smp's form of YAML: parse_yaml() reads the text back unchanged, and the same input gives the same
// bytes.
namespace smp::text {

// A text as a scalar: plain if no reader can mistake it for another type, else in double quotes.
std::string yaml_text(std::string_view text);

}  // namespace smp::text
