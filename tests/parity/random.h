#pragma once

#include <cstdint>

namespace smp::parity {

// The same numbers in every run: xorshift64, Marsaglia 2003.
class Random {
 public:
  int below(int bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<int>(state_ % static_cast<uint64_t>(bound));
  }

 private:
  uint64_t state_ = 88172645463325252u;
};

}  // namespace smp::parity
