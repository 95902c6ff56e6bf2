#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "smp/comm/communicator.h"

namespace smp::comm {

// A communicator that passes every call on to another one. A derived class overrides pass() to
// change or observe calls. It does not pass on windows. Thread rule of the communicator behind it.
class WrappedCommunicator : public Communicator {
 public:
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int global_rank(int rank) const override { return inner_.global_rank(rank); }
  WorkPtr all_reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                     std::string_view label) final;
  WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                     std::string_view label) final;
  WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                         std::string_view label) final;
  WorkPtr broadcast(void* buffer, int64_t count, DType dtype, int root,
                    std::string_view label) final;
  WorkPtr reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op, int root,
                 std::string_view label) final;
  WorkPtr gather(const void* in, void* out, int64_t count, DType dtype, int root,
                 std::string_view label) final;
  WorkPtr scatter(const void* in, void* out, int64_t count, DType dtype, int root,
                  std::string_view label) final;
  WorkPtr all_to_all(const void* in, void* out, int64_t count, DType dtype,
                     std::string_view label) final;
  WorkPtr send(const void* in, int64_t count, DType dtype, int peer, std::string_view label) final;
  WorkPtr recv(void* out, int64_t count, DType dtype, int peer, std::string_view label) final;
  WorkPtr barrier(std::string_view label) final;
  void set_timeout(std::chrono::milliseconds timeout) override { inner_.set_timeout(timeout); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  std::optional<CommError> error() const override { return inner_.error(); }
  Survivors shrink(std::chrono::milliseconds limit) override { return inner_.shrink(limit); }
  std::shared_ptr<const CallLog> call_log() const override { return inner_.call_log(); }
  std::vector<TrafficCount> traffic() const override { return inner_.traffic(); }
  int64_t segment_bytes() const override { return inner_.segment_bytes(); }
  std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) override {
    return inner_.allocate_symmetric(bytes);
  }
  void lend_cpus() override { inner_.lend_cpus(); }

 protected:
  // A call as data, so that it can be made at another time and place. The label lives as long as
  // the call of this communicator.
  struct Call {
    mesh::CollectiveOp op = mesh::CollectiveOp::kBarrier;
    const void* in = nullptr;  // null: none
    void* out = nullptr;       // also the buffer of a broadcast
    int64_t count = 0;
    DType dtype = DType::kU8;
    ReduceOp reduce_op = ReduceOp::kSum;
    int peer = 0;  // the root, or the other side of a send or recv
    std::string_view label;
  };
  static WorkPtr make(const Call& call, Communicator& on);

  explicit WrappedCommunicator(std::unique_ptr<Communicator> inner)
      : owned_(std::move(inner)), inner_(*owned_) {}
  // The same for a communicator that somebody else owns.
  explicit WrappedCommunicator(Communicator& inner) : inner_(inner) {}

  Communicator& inner() { return inner_; }
  // Makes the call on inner() and returns the Work that the caller gets.
  virtual WorkPtr pass(const Call& call) { return make(call, inner_); }

 private:
  const std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
};

}  // namespace smp::comm
