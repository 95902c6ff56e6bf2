#pragma once

#include <cstdint>

namespace smp::waiting {

// The state of another process of this host, as the kernel says. It tells a stopped process from
// one that only has no CPU. Any thread.
enum class ProcessState {
  kUnknown,   // of another PID namespace, gone, or not readable
  kStopped,   // by a signal or a debugger: none of its threads runs
  kRunnable,  // a thread runs, or would if it had a CPU
  kAsleep,    // no thread would run; frozen processes look so too
};
ProcessState state_of(int32_t process);

// Equal for processes that see the same process ids; 0: not known.
uint64_t own_pid_namespace();

}  // namespace smp::waiting
