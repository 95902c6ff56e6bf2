#pragma once

#include <charconv>
#include <string>

namespace smp::env {

// "" where it is not set.
std::string optional(const char* name);
// Throws ConfigError: "RANK is not set; `program` is started by smp-launch, not by hand".
std::string required(const char* name, const std::string& program);
// "RANK='x' is not a number"
[[noreturn]] void not_a_number(const char* name, const std::string& text);

template <typename Number>
Number number(const char* name, const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) not_a_number(name, text);
  return value;
}

}  // namespace smp::env
