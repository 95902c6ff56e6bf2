#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "smp/comm/communicator.h"

namespace smp {

// A communicator that passes every call on to another one: the base of those that add something to
// the calls on their way, which override begin(), wrap(), or single calls. Windows it does not pass
// on.
// Thread rule of the Communicator behind it.
class WrappedCommunicator : public Communicator {
 public:
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
  WorkPtr reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op, int root,
                 std::string_view label) override;
  WorkPtr gather(const void* in, void* out, int64_t count, DType dtype, int root,
                 std::string_view label) override;
  WorkPtr scatter(const void* in, void* out, int64_t count, DType dtype, int root,
                  std::string_view label) override;
  WorkPtr all_to_all(const void* in, void* out, int64_t count, DType dtype,
                     std::string_view label) override;
  WorkPtr send(const void* in, int64_t count, DType dtype, int peer,
               std::string_view label) override;
  WorkPtr recv(void* out, int64_t count, DType dtype, int peer, std::string_view label) override;
  WorkPtr barrier(std::string_view label) override;
  void set_timeout(std::chrono::milliseconds timeout) override { inner_.set_timeout(timeout); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  Survivors shrink(std::chrono::milliseconds limit) override { return inner_.shrink(limit); }
  std::shared_ptr<const CallLog> call_log() const override { return inner_.call_log(); }
  std::vector<TrafficCount> traffic() const override { return inner_.traffic(); }
  int64_t segment_bytes() const override { return inner_.segment_bytes(); }
  std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) override {
    return inner_.allocate_symmetric(bytes);
  }

 protected:
  // A call that is passed on; the root of one that has one.
  struct Passed {
    CollectiveOp op;
    int64_t count;
    DType dtype;
    std::string_view label;
    int root = 0;
  };

  explicit WrappedCommunicator(std::unique_ptr<Communicator> inner)
      : owned_(std::move(inner)), inner_(*owned_) {}
  // The same for a communicator that somebody else owns.
  explicit WrappedCommunicator(Communicator& inner) : inner_(inner) {}

  Communicator& inner() { return inner_; }
  virtual void begin(const Passed&) {}  // the call is about to be passed on
  // The Work that the caller gets.
  virtual WorkPtr wrap(WorkPtr work, const Passed& call);

 private:
  template <typename Call>
  WorkPtr pass(const Passed& call, const Call& inner_call) {
    begin(call);
    return wrap(inner_call(), call);
  }

  const std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
};

}  // namespace smp
