#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/comm/waiting/creator_process.h"

namespace smp::groups {

// A group that is safe in forked children. A child's calls are refused and its objects destroy
// nothing: threads that do not exist there may hold locks, and peers, sockets and network belong to
// the parent. Thread rule of the group. It forwards every call by itself, since it stands before
// every call, however short.
class ForkGuardedCommunicator final : public comm::Communicator {
 public:
  explicit ForkGuardedCommunicator(std::unique_ptr<comm::Communicator> group)
      : rank_(group->global_rank(group->rank())), group_(group.release()) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int global_rank(int rank) const override { return group_->global_rank(rank); }
  std::shared_ptr<const comm::CallLog> call_log() const override { return group_->call_log(); }
  int64_t segment_bytes() const override { return group_->segment_bytes(); }

  comm::WorkPtr all_reduce(const void* in, void* out, int64_t count, DType dtype, comm::ReduceOp op,
                           std::string_view label) override {
    return group().all_reduce(in, out, count, dtype, op, label);
  }
  comm::WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                           std::string_view label) override {
    return group().all_gather(in, out, count, dtype, label);
  }
  comm::WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                               comm::ReduceOp op, std::string_view label) override {
    return group().reduce_scatter(in, out, count, dtype, op, label);
  }
  comm::WorkPtr broadcast(void* buffer, int64_t count, DType dtype, int root,
                          std::string_view label) override {
    return group().broadcast(buffer, count, dtype, root, label);
  }
  comm::WorkPtr reduce(const void* in, void* out, int64_t count, DType dtype, comm::ReduceOp op,
                       int root, std::string_view label) override {
    return group().reduce(in, out, count, dtype, op, root, label);
  }
  comm::WorkPtr gather(const void* in, void* out, int64_t count, DType dtype, int root,
                       std::string_view label) override {
    return group().gather(in, out, count, dtype, root, label);
  }
  comm::WorkPtr scatter(const void* in, void* out, int64_t count, DType dtype, int root,
                        std::string_view label) override {
    return group().scatter(in, out, count, dtype, root, label);
  }
  comm::WorkPtr all_to_all(const void* in, void* out, int64_t count, DType dtype,
                           std::string_view label) override {
    return group().all_to_all(in, out, count, dtype, label);
  }
  comm::WorkPtr send(const void* in, int64_t count, DType dtype, int peer,
                     std::string_view label) override {
    return group().send(in, count, dtype, peer, label);
  }
  comm::WorkPtr recv(void* out, int64_t count, DType dtype, int peer,
                     std::string_view label) override {
    return group().recv(out, count, dtype, peer, label);
  }
  comm::WorkPtr barrier(std::string_view label) override { return group().barrier(label); }
  std::unique_ptr<comm::PeerWindow> open_window(const void* memory, int64_t count, DType dtype,
                                                std::string_view label) override;

  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override {
    return group().split(members);
  }
  void set_timeout(std::chrono::milliseconds timeout) override { group().set_timeout(timeout); }
  void abort(const std::string& reason) override { group().abort(reason); }
  std::optional<comm::CommError> error() const override { return group().error(); }
  comm::Survivors shrink(std::chrono::milliseconds limit) override { return group().shrink(limit); }
  std::vector<comm::TrafficCount> traffic() const override { return group().traffic(); }
  std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) override {
    return group().allocate_symmetric(bytes);
  }
  void lend_cpus() override { group().lend_cpus(); }

 private:
  comm::Communicator& group() const {
    group_.get_deleter().home.check(rank_);
    return *group_;
  }

  const int rank_;  // in the job
  const waiting::OwnedByCreator<comm::Communicator> group_;
};

}  // namespace smp::groups
