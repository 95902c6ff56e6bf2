#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace smp::shell {

// The value of a shell's arithmetic: 64-bit integers, + - * / % **, comparisons, && || ! ?:, and
// names, whose values `value_of` gives. Nothing if the text has another form, a name has no value,
// or the result is undefined (a division by 0). Assignments are not read.
std::optional<int64_t> shell_arithmetic(
    std::string_view text,
    const std::function<std::optional<int64_t>(const std::string&)>& value_of);

}  // namespace smp::shell
