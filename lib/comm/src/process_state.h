#pragma once

#include <cstdint>

namespace smp::shm {

// What the kernel says of another process of this host, by which one that is stopped is told from
// one that others keep from its CPU. Any thread.
enum class ProcessState {
  kUnknown,   // it is of another PID namespace, gone, or not to be looked at
  kStopped,   // by a signal or a debugger: none of its threads goes on
  kRunnable,  // a thread runs, or would if it had a CPU
  kAsleep,    // none would; so say frozen ones too
};
ProcessState state_of(int32_t process);

// By which process ids of two processes mean the same; 0: not known.
uint64_t own_pid_namespace();

}  // namespace smp::shm
