#pragma once

namespace smp::waiting {

// For who looks again and again: what shares the core goes first.
inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace smp::waiting
