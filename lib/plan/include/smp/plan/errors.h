#pragma once

#include <stdexcept>
#include <string>

namespace smp {

// Input that cannot be honoured: a job file, a plan, a command line. what() is the whole text a user
// sees, with its place (file:line:column) where there is one. Programs end with ExitCode::kBadConfig.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace smp
