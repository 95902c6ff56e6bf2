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

// What one rank's side of a group is made of, whether the group is inside a host or not: its
// members, how its calls are numbered and started, what has failed. The public calls come from one
// thread and only make operations; their programs run under the engine's lock.
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

  // `parents`: the failure records of this group's parents, the job's last. The group's own record
  // goes before them; the derived class adds it.
  GroupSide(std::shared_ptr<Seat> seat, std::vector<int> globals, int rank, uint64_t key,
            std::vector<RecordPtr> parents);

  // The program of a reduce, gather, scatter or all_to_all.
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
  // Counts the message in `number`. The caller has checked the peer.
  static Call message(CollectiveOp op, int64_t count, DType dtype, int peer, std::string_view label,
                      uint64_t& number);
  std::shared_ptr<Operation> operation(Lane& lane, Call&& call);
  // `program` may be made with the operation: `op` is moved from only when both arguments are made.
  WorkPtr start(std::shared_ptr<Operation>&& op, Program program);
  WorkPtr start(Call call, const void* in, void* out);  // with program_of
  // Ends what is under way; to be called before anything of the group goes. Returns whether an
  // exception ends the group; that of the world's group fails the job.
  bool close(std::vector<Lane*> lanes);

  const std::shared_ptr<Seat> seat_;
  const std::vector<int> globals_;
  const int rank_;
  const int size_;
  const uint64_t key_;
  std::vector<RecordPtr> records_;  // its own, its parents', the job's
  Lane collectives_;
  TrafficCounter traffic_;
  std::atomic<std::chrono::milliseconds> timeout_;  // of calls from now on

 private:
  void log(Operation& op) const;

  GroupKeys keys_;
  LoggedCall logged_;  // what all its calls have in common in the log
  uint64_t calls_ = 0;
  const Unwinding unwinding_;
};

// The communicator of these ranks of the job, on one host or several.
std::unique_ptr<Communicator> make_group(std::shared_ptr<Seat> seat, std::vector<int> globals,
                                         int rank, uint64_t key, std::vector<RecordPtr> parents);

}  // namespace smp::shm
