#pragma once

#include <string>
#include <string_view>

namespace smp::text {

// The text as a terminal may show it, whoever wrote parts of it. Lines, tabs and UTF-8 stay.
// Control characters, whatever changes the direction of writing, and bytes that are no UTF-8 are
// written as \x1b or \u009b, which in JSON means the same.
std::string printable(std::string_view text);

}  // namespace smp::text
