#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "smp/comm/call_log.h"
#include "smp/plan/system/signal_thread.h"
#include "smp/runtime/ledger/memory_report.h"

namespace smp {

// What smp-launch asks of this rank by signals, from before there are other threads on: by SIGUSR1
// to save a checkpoint after the step under way and to end, by SIGUSR2 to print its memory and its
// last calls to standard error, whatever its other threads do: a rank that hangs answers too.
class RankSignals {
 public:
  explicit RankSignals(const ledger::MemoryWatch& watch);

  bool end_requested() const { return end_requested_; }
  void print_calls_of(std::shared_ptr<const comm::CallLog> log);

 private:
  void take(int number);

  const ledger::MemoryWatch& watch_;
  std::atomic<bool> end_requested_{false};
  std::mutex mutex_;
  std::shared_ptr<const comm::CallLog> log_;
  system::SignalThread thread_;  // the last: it uses the others
};

}  // namespace smp
