#pragma once

#include <string>
#include <string_view>

namespace smp::text {

// `text` as a comment of lines up to 96 characters, each with its newline. The first line begins
// with `first`, the others with `next`, both without the blank before the words. Control characters
// become '?'. A longer word stands whole on a line. Pure; any thread.
std::string comment_lines(std::string_view text, std::string_view first, std::string_view next);

}  // namespace smp::text
