#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

// The values of options, as typed.
namespace smp {

// Throws UsageError with the option's name.
std::chrono::milliseconds duration_of(const char* option, const std::string& text);

// Nothing where the text is no whole number, or too large a one.
std::optional<int64_t> whole_number(const std::string& text);

}  // namespace smp
