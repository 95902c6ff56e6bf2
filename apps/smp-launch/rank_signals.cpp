#include "rank_signals.h"

#include <signal.h>

#include <cstdio>
#include <string>
#include <utility>

namespace smp {
namespace {

constexpr size_t kCallsOnRequest = 32;

}  // namespace

RankSignals::RankSignals(const ledger::MemoryWatch& watch)
    : watch_(watch), thread_({SIGUSR1, SIGUSR2}, [this](int number) { take(number); }) {}

void RankSignals::take(int number) {
  if (number == SIGUSR1) {
    end_requested_ = true;
    return;
  }
  const std::string report = watch_.report();
  std::fputs(report.empty() ? "no memory to report: the rank is not training\n" : report.c_str(),
             stderr);
  const std::lock_guard guard(mutex_);
  if (log_) std::fputs(log_->text(kCallsOnRequest).c_str(), stderr);
}

void RankSignals::print_calls_of(std::shared_ptr<const comm::CallLog> log) {
  const std::lock_guard guard(mutex_);
  log_ = std::move(log);
}

}  // namespace smp
