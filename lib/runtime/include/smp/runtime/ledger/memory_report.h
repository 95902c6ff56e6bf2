#pragma once

#include <mutex>
#include <string>

#include "smp/runtime/ledger/memory_ledger.h"

// A rank's memory as a text for people, at any time.
namespace smp::ledger {

// Both pools by category, live and at their peak, and the largest live items. Any thread.
std::string memory_report(const MemoryLedger& device, const MemoryLedger& host);

// Gives other threads access to the ledgers of the rank that trains in this process. The trainer
// registers them while they live. Any thread.
class MemoryWatch {
 public:
  std::string report() const;  // "" while no ledgers are registered

  // Registers the ledgers with `watch`, unless it is null, while this object lives.
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
  mutable std::mutex mutex_;  // held while a report is made, so that the ledgers stay alive
  const MemoryLedger* device_ = nullptr;
  const MemoryLedger* host_ = nullptr;
};

}  // namespace smp::ledger
