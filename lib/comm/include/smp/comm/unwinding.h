#pragma once

#include <exception>

namespace smp {

// Tells the destructor of its owner whether an exception is what destroys it. Made and asked on
// one thread.
class Unwinding {
 public:
  bool now() const { return std::uncaught_exceptions() > before_; }

 private:
  const int before_ = std::uncaught_exceptions();
};

}  // namespace smp
