#pragma once

#include <memory>
#include <string>
#include <vector>

#include "smp/comm/home_process.h"
#include "smp/comm/wrapped_communicator.h"

namespace smp::shm {

// A group as its process holds it. In children that the process forks every call is refused, and
// nothing ends: locks may be held there by threads that are not, and peers, sockets and network are
// the parent's. Thread rule of the group.
class HeldCommunicator final : public WrappedCommunicator {
 public:
  explicit HeldCommunicator(std::unique_ptr<Communicator> group)
      : WrappedCommunicator(*group),
        rank_(group->global_rank(group->rank())),
        group_(group.release()) {}

  std::unique_ptr<PeerWindow> open_window(const void* memory, int64_t count, DType dtype,
                                          std::string_view label) override;
  std::unique_ptr<Communicator> split(const std::vector<int>& members) override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  void abort(const std::string& reason) override;
  std::optional<CommError> error() const override;
  Survivors shrink(std::chrono::milliseconds limit) override;
  std::vector<TrafficCount> traffic() const override;
  std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) override;

 private:
  WorkPtr pass(const Call& call) override;
  void check() const { group_.get_deleter().home.check(rank_); }

  const int rank_;  // in the job
  const OwnedAtHome<Communicator> group_;
};

}  // namespace smp::shm
