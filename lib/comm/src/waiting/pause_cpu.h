#pragma once

namespace smp::waiting {

// The pause instruction of a spin loop: the other hyper-thread of the core goes first.
inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace smp::waiting
