#pragma once

#include <cstdint>

namespace smp::waiting {

// What the kernel says of another process of this host. It tells a stopped process from one that
// only has no CPU. Any thread.
enum class ProcessState {
  kUnknown,   // of another PID namespace, gone, or not readable
  kStopped,   // by a signal or a debugger: none of its threads runs
  kRunnable,  // a thread runs, or would if it had a CPU
  kAsleep,    // no thread would run; frozen processes look so too
};
ProcessState state_of(int32_t process);

// Two processes with the same value mean the same process by a process id; 0: not known.
uint64_t own_pid_namespace();

}  // namespace smp::waiting
