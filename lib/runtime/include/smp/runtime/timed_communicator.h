#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "smp/comm/communicator.h"

namespace smp {

// Time that a rank has spent waiting for others. One thread.
struct WaitClock {
  std::chrono::nanoseconds waited{0};

  double seconds() const { return std::chrono::duration<double>(waited).count(); }
};

// A TimedCommunicator passes everything on to another Communicator and adds the time that its Works
// are waited for to a clock: what a rank reports as idle. Thread rule of the Communicator behind
// it.
class TimedCommunicator final : public Communicator {
 public:
  // `clock` must outlive this object and all Works it has given out.
  TimedCommunicator(std::unique_ptr<Communicator> inner, WaitClock& clock);
  // The same for a communicator that somebody else owns.
  TimedCommunicator(Communicator& inner, WaitClock& clock);

  int rank() const override;
  int size() const override;
  int global_rank(int rank) const override;
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
  std::unique_ptr<PeerWindow> open_window(const void* memory, int64_t count, DType dtype,
                                          std::string_view label) override;
  std::unique_ptr<Communicator> split(const std::vector<int>& members) override;
  void abort(const std::string& reason) override;
  std::vector<TrafficCount> traffic() const override;
  int64_t segment_bytes() const override;
  std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) override;

 private:
  WorkPtr timed(WorkPtr work);

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  WaitClock& clock_;
};

}  // namespace smp
