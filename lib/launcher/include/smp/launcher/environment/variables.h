#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Values of environment variables. Pure functions.
namespace smp::environment {

// NAME of "NAME=value" or "NAME".
std::string_view name_in(std::string_view variable);

// The value of a variable in "NAME=value" texts; nothing where it is not set.
std::optional<std::string> value_in(const std::vector<std::string>& environment,
                                    const std::string& name);

// The whole number from `least` to `most` that is the value of a variable. Throws ConfigError, also
// where it is not set.
int number_in(const std::vector<std::string>& environment, const char* name, int least,
              int most = std::numeric_limits<int>::max());

}  // namespace smp::environment
