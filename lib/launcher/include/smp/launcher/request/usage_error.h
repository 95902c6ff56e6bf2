#pragma once

#include <stdexcept>

namespace smp::request {

// A command line that cannot be understood; what() says what to type instead.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace smp::request
