#pragma once

#include <cstdint>

namespace smp::system {

// What a program of ours needs of the limits that it is started with (ulimit); 0: nothing.
struct LeastLimits {
  int64_t stack_bytes = 0;
  int64_t open_files = 0;
};

// A frame holds up to 64 KiB, readers of nested texts recurse, and threads get stacks of as much.
inline constexpr int64_t kLeastStackBytes = 512 << 10;

// Throws std::runtime_error, which names the limit, its value and what is needed. Call it first in
// main: where the stack is too small, what comes next would be a segmentation fault.
void check_limits(const LeastLimits& least);

}  // namespace smp::system
