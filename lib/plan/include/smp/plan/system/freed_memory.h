#pragma once

#include <malloc.h>

#include <limits>

namespace smp::system {

// From now on the process keeps what it frees: it soon asks for the same blocks again, and the
// kernel would have to clear their pages each time.
inline void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

}  // namespace smp::system
