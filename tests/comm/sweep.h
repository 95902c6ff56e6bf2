#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

// What scripts/sweep-collectives makes larger than every test run does.
namespace smp::testing {

inline int64_t swept(const char* variable, int64_t usual) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? usual : std::stoll(value);
}

}  // namespace smp::testing
