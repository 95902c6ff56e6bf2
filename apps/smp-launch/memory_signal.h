#pragma once

#include <atomic>
#include <thread>

#include "smp/runtime/memory_report.h"

namespace smp {

// Until its end, SIGUSR2 makes this process print the memory of its rank to standard error,
// whatever its other threads do: a rank that hangs answers too. Made before any other thread, so
// that none takes the signal.
class MemorySignal {
 public:
  explicit MemorySignal(const MemoryWatch& watch);
  ~MemorySignal();
  MemorySignal(const MemorySignal&) = delete;
  MemorySignal& operator=(const MemorySignal&) = delete;

 private:
  const MemoryWatch& watch_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace smp
