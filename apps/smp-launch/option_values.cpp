#include "option_values.h"

#include <fmt/format.h>

#include <charconv>

#include "command_line.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/request/usage_error.h"
#include "smp/plan/base/errors.h"

namespace smp {

std::chrono::milliseconds duration_of(const char* option, const std::string& text) {
  try {
    return hosts::parse_duration(text);
  } catch (const ConfigError& error) {
    throw request::UsageError(fmt::format("{} {}", option, error.what()));
  }
}

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc{} || end != last) return std::nullopt;
  return number;
}

}  // namespace smp
