#include "smp/plan/env/environment_reader.h"

#include <fmt/format.h>

#include <cstdlib>

#include "smp/plan/base/errors.h"

namespace smp::env {

std::string optional(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string required(const char* name, const std::string& program) {
  std::string value = optional(name);
  if (value.empty()) {
    throw ConfigError(
        fmt::format("{} is not set; {} is started by smp-launch, not by hand", name, program));
  }
  return value;
}

void not_a_number(const char* name, const std::string& text) {
  throw ConfigError(fmt::format("{}='{}' is not a number", name, text));
}

}  // namespace smp::env
