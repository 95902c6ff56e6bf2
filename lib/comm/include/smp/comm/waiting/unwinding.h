#pragma once

#include <exception>

namespace smp::waiting {

// Tells its owner's destructor whether an exception destroys the owner. Of one thread.
class Unwinding {
 public:
  bool now() const { return std::uncaught_exceptions() > before_; }

 private:
  const int before_ = std::uncaught_exceptions();
};

}  // namespace smp::waiting
