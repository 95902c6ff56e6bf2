#pragma once

#include <cstdint>

namespace smp::system {

// The limits (ulimit) that a program of ours needs; 0: no need.
struct LeastLimits {
  int64_t stack_bytes = 0;
  int64_t open_files = 0;
};

// A frame holds up to 64 KiB, readers of nested texts recurse, and threads get stacks of this size.
inline constexpr int64_t kLeastStackBytes = 512 << 10;

// Throws std::runtime_error, which names the limit, its value and the need. Call it first in main:
// a stack that is too small would end in a segmentation fault later.
void check_limits(const LeastLimits& least);

}  // namespace smp::system
