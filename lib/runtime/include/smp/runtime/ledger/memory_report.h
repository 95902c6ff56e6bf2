#pragma once

#include <mutex>
#include <string>

#include "smp/runtime/ledger/memory_ledger.h"

// What a rank holds, for people and at any time.
namespace smp::ledger {

// Both pools by category, live and at their peak, and the largest live items. Any thread.
std::string memory_report(const MemoryLedger& device, const MemoryLedger& host);

// Where a thread that trains nothing finds the ledgers of the rank that trains in this process: the
// trainer shows them while they live. Any thread.
class MemoryWatch {
 public:
  std::string report() const;  // "" while no rank is shown

  // Shows them to `watch`, if there is one, until its end.
  class Show {
   public:
    Show(MemoryWatch* watch, const MemoryLedger& device, const MemoryLedger& host);
    ~Show();
    Show(const Show&) = delete;
    Show& operator=(const Show&) = delete;

   private:
    MemoryWatch* watch_;
  };

 private:
  mutable std::mutex mutex_;  // held while a report is made, so that the ledgers stay
  const MemoryLedger* device_ = nullptr;
  const MemoryLedger* host_ = nullptr;
};

}  // namespace smp::ledger
