#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine.h"
#include "group_keys.h"
#include "job.h"
#include "seat.h"
#include "smp/comm/communicator.h"
#include "smp/comm/unwinding.h"
#include "traffic_counter.h"

namespace smp::shm {

// What one rank's sides of all groups have in common, wherever the ranks are: who is in it, how its
// calls are numbered and started, what has failed. The public calls come from one thread and only
// make operations; their programs run under the engine's lock.
class GroupSide : public Communicator, protected Member {
 public:
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int global_rank(int rank) const override;

  std::unique_ptr<Communicator> split(const std::vector<int>& members) override;
  WorkPtr reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op, int root,
                 std::string_view label) override;
  WorkPtr gather(const void* in, void* out, int64_t count, DType dtype, int root,
                 std::string_view label) override;
  WorkPtr scatter(const void* in, void* out, int64_t count, DType dtype, int root,
                  std::string_view label) override;
  WorkPtr all_to_all(const void* in, void* out, int64_t count, DType dtype,
                     std::string_view label) override;

  std::shared_ptr<const CallLog> call_log() const override { return seat_->engine.log(); }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_.store(timeout); }
  void abort(const std::string& reason) override;
  std::optional<CommError> error() const override;
  Survivors shrink(std::chrono::milliseconds limit) override;
  std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) override;
  void lend_cpus() override { seat_->lend_cpus(); }

 protected:
  using Bytes = std::byte*;
  using ConstBytes = const std::byte*;

  // `parents`: where failures of this group's parents are written, the job's last. The group's own
  // record, which goes before them, is its constructor's to add.
  GroupSide(std::shared_ptr<Seat> seat, std::vector<int> globals, int rank, uint64_t key,
            std::vector<RecordPtr> parents);

  // Of a reduce, gather, scatter or all_to_all.
  virtual Program program_of(Operation& op, ConstBytes in, Bytes out) = 0;

  int global(int rank) const override { return globals_[size_t(rank)]; }
  int awaited(Operation& op) const override {
    const int peer = op.awaited();
    return peer < 0 ? -1 : global(mover_of(op, peer));
  }
  std::optional<Failure> failure() const override;
  void note(Operation& op) override {
    if (op.logged == 0 && !is_step(op.call.label)) log(op);
  }
  void finished(const Operation& op) override;

  Call collective(CollectiveOp op, int64_t count, DType dtype, std::string_view label);
  Call reduction(CollectiveOp op, const void* in, const void* out, int64_t count, DType dtype,
                 ReduceOp how, std::string_view label);
  Call with_root(CollectiveOp op, int64_t count, DType dtype, int root, std::string_view label);
  // Counts it in `number`. The caller has checked the peer.
  static Call message(CollectiveOp op, int64_t count, DType dtype, int peer, std::string_view label,
                      uint64_t& number);
  std::shared_ptr<Operation> operation(Lane& lane, Call&& call);
  // The operation may be what the program is made with: it is moved from when both are here.
  WorkPtr start(std::shared_ptr<Operation>&& op, Program program);
  WorkPtr start(Call call, const void* in, void* out);  // with program_of
  // Ends what is under way; to be called before anything of the group goes. Whether an exception
  // ends the group, which the world's tells the job.
  bool close(std::vector<Lane*> lanes);

  const std::shared_ptr<Seat> seat_;
  const std::vector<int> globals_;
  const int rank_;
  const int size_;
  const uint64_t key_;
  std::vector<RecordPtr> records_;  // own, parents', the job's
  Lane collectives_;
  TrafficCounter traffic_;
  std::atomic<std::chrono::milliseconds> timeout_;  // of calls from now on

 private:
  void log(Operation& op) const;

  GroupKeys keys_;
  LoggedCall logged_;  // what its calls have in common
  uint64_t calls_ = 0;
  const Unwinding unwinding_;
};

// The communicator of these ranks of the job, wherever they are.
std::unique_ptr<Communicator> make_group(std::shared_ptr<Seat> seat, std::vector<int> globals,
                                         int rank, uint64_t key, std::vector<RecordPtr> parents);

}  // namespace smp::shm
