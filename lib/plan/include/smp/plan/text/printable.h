#pragma once

#include <string>
#include <string_view>

namespace smp::text {

// The text in a form that is safe on a terminal, whoever wrote parts of it. Lines, tabs and UTF-8
// stay. Control characters, characters that change the direction of writing, and bytes that are not
// UTF-8 are written as \x1b or \u009b, which mean the same in JSON.
std::string printable(std::string_view text);

}  // namespace smp::text
