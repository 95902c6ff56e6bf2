#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "smp/comm/communicator.h"

namespace smp {

// One rank's time. A virtual one goes on only where somebody waits, so that runs are exact.
class BenchClock {
 public:
  virtual ~BenchClock() = default;
  virtual double now_s() = 0;
  virtual void wait_until(double time_s) = 0;
};
std::unique_ptr<BenchClock> virtual_clock();
std::unique_ptr<BenchClock> wall_clock();

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
class PacedCommunicator final : public Communicator {
 public:
  PacedCommunicator(Communicator& inner, PacedLink& link) : inner_(inner), link_(link) {}
  PacedCommunicator(std::unique_ptr<Communicator> inner, PacedLink& link)
      : owned_(std::move(inner)), inner_(*owned_), link_(link) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int global_rank(int rank) const override { return inner_.global_rank(rank); }
  WorkPtr all_reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                     std::string_view label) override;
  WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                     std::string_view label) override;
  WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                         std::string_view label) override;
  WorkPtr broadcast(void* buffer, int64_t count, DType dtype, int root,
                    std::string_view label) override;
  WorkPtr send(const void* in, int64_t count, DType dtype, int peer,
               std::string_view label) override;
  WorkPtr recv(void* out, int64_t count, DType dtype, int peer, std::string_view label) override;
  WorkPtr barrier(std::string_view label) override;
  std::unique_ptr<Communicator> split(const std::vector<int>& members) override;
  void abort(const std::string& reason) override { inner_.abort(reason); }
  std::vector<TrafficCount> traffic() const override { return inner_.traffic(); }
  int64_t segment_bytes() const override { return inner_.segment_bytes(); }
  std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) override {
    return inner_.allocate_symmetric(bytes);
  }

 private:
  WorkPtr paced(WorkPtr work, CollectiveOp op, int64_t count, DType dtype, int root = 0);

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  PacedLink& link_;
};

}  // namespace smp
