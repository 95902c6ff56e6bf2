#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "smp/comm/wrapped_communicator.h"

namespace smp {

// One rank's time. A virtual one goes on only where somebody waits, so that runs are exact.
class BenchClock {
 public:
  virtual ~BenchClock() = default;
  virtual double now_s() = 0;
  virtual void wait_until(double time_s) = 0;
  // What has passed since `time_s` was no work of the rank's.
  virtual void turn_back(double /*time_s*/) {}
};
std::unique_ptr<BenchClock> virtual_clock();
std::unique_ptr<BenchClock> wall_clock();
// The CPU time of the calling thread, which other threads do not slow, and the time that it waits.
std::unique_ptr<BenchClock> cpu_clock();

// What one rank sends over, one call after the other, in the background: a call takes `latency_s`
// and its wire bytes over `bytes_per_s`.
struct PacedLink {
  PacedLink(BenchClock& of_rank, double rate_bytes_per_s, double call_latency_s)
      : clock(of_rank), bytes_per_s(rate_bytes_per_s), latency_s(call_latency_s) {}

  BenchClock& clock;
  const double bytes_per_s;
  const double latency_s;
  double free_at_s = 0;
  double busy_s = 0;    // of all calls
  double waited_s = 0;  // for calls
};

// A PacedCommunicator passes everything on to another Communicator, and its Works are done when
// the link has carried them, no earlier. Ranks start alike, so each asks its own link. Groups split
// off share the link. One thread; communicators and link must outlive the Works.
class PacedCommunicator final : public comm::WrappedCommunicator {
 public:
  PacedCommunicator(comm::Communicator& inner, PacedLink& link)
      : comm::WrappedCommunicator(inner), link_(link) {}
  PacedCommunicator(std::unique_ptr<comm::Communicator> inner, PacedLink& link)
      : comm::WrappedCommunicator(std::move(inner)), link_(link) {}

  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override;

 private:
  comm::WorkPtr pass(const Call& call) override;

  PacedLink& link_;
};

}  // namespace smp
