#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "smp/comm/call_log.h"
#include "smp/runtime/memory_report.h"

namespace smp {

// Until its end, SIGUSR2 makes this process print the memory of its rank and its last calls to
// standard error, whatever its other threads do: a rank that hangs answers too. Made before any
// other thread, so that none takes the signal.
class MemorySignal {
 public:
  explicit MemorySignal(const MemoryWatch& watch);
  ~MemorySignal();
  MemorySignal(const MemorySignal&) = delete;
  MemorySignal& operator=(const MemorySignal&) = delete;

  void print_calls_of(std::shared_ptr<const CallLog> log);

 private:
  const MemoryWatch& watch_;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::shared_ptr<const CallLog> log_;
  std::thread thread_;
};

}  // namespace smp
