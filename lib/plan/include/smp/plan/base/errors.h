#pragma once

#include <stdexcept>
#include <string>

namespace smp {

// Input that cannot be honoured: a job file, a plan, a command line. what() is the whole text for
// the user, with its place (file:line:column) where it has one. Programs end with kBadConfig.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace smp
