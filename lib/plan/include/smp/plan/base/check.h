#pragma once

#include <sstream>
#include <stdexcept>

// Checks of our own invariants: a failure is a bug in smp, never a user's mistake.
namespace smp {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void check_failed(const char* file, int line, const std::string& text);

}  // namespace smp

#define SMP_CHECK(condition)                                               \
  do {                                                                     \
    if (!(condition)) ::smp::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)

#define SMP_CHECK_EQ(a, b)                                                 \
  do {                                                                     \
    const auto& smp_a_ = (a);                                              \
    const auto& smp_b_ = (b);                                              \
    if (!(smp_a_ == smp_b_)) {                                             \
      std::ostringstream smp_text_;                                        \
      smp_text_ << #a " == " #b " (" << smp_a_ << " vs " << smp_b_ << ")"; \
      ::smp::check_failed(__FILE__, __LINE__, smp_text_.str());            \
    }                                                                      \
  } while (false)
