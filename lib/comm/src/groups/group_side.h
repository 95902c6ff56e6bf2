#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "groups/rank_context.h"
#include "net/group_keys.h"
#include "progress/progress_engine.h"
#include "segment/shared_job.h"
#include "smp/comm/communicator.h"
#include "smp/comm/waiting/unwinding.h"
#include "traffic_counter.h"

namespace smp::groups {

// One rank's side of a group, inside a host or between hosts: its members, how its calls are
// numbered and started, and its failure. The public calls come from one thread and only make
// operations; their programs run under the engine's lock.
class GroupSide : public comm::Communicator, protected progress::Member {
 public:
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int global_rank(int rank) const override;

  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override;
  comm::WorkPtr reduce(const void* in, void* out, int64_t count, DType dtype, comm::ReduceOp op,
                       int root, std::string_view label) override;
  comm::WorkPtr gather(const void* in, void* out, int64_t count, DType dtype, int root,
                       std::string_view label) override;
  comm::WorkPtr scatter(const void* in, void* out, int64_t count, DType dtype, int root,
                        std::string_view label) override;
  comm::WorkPtr all_to_all(const void* in, void* out, int64_t count, DType dtype,
                           std::string_view label) override;

  std::shared_ptr<const comm::CallLog> call_log() const override { return context_->engine.log(); }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_.store(timeout); }
  void abort(const std::string& reason) override;
  std::optional<comm::CommError> error() const override;
  comm::Survivors shrink(std::chrono::milliseconds limit) override;
  std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) override;
  void lend_cpus() override { context_->lend_cpus(); }

 protected:
  using Bytes = std::byte*;
  using ConstBytes = const std::byte*;

  // `parents`: the failure records of this group's parents, the job's last. The derived class puts
  // the group's own record before them.
  GroupSide(std::shared_ptr<RankContext> context, std::vector<int> globals, int rank, uint64_t key,
            std::vector<RecordPtr> parents);

  // The program of a reduce, gather, scatter or all_to_all.
  virtual progress::Program program_of(progress::Operation& op, ConstBytes in, Bytes out) = 0;

  int global(int rank) const override { return globals_[size_t(rank)]; }
  int awaited(progress::Operation& op) const override {
    const int peer = op.awaited();
    return peer < 0 ? -1 : global(counter_owner(op, peer));
  }
  std::optional<segment::Failure> failure() const override;
  void note(progress::Operation& op) override {
    if (op.logged == 0 && !progress::is_step(op.call.label)) log(op);
  }
  void finished(const progress::Operation& op) override;

  progress::Call collective(mesh::CollectiveOp op, int64_t count, DType dtype,
                            std::string_view label);
  progress::Call reduction(mesh::CollectiveOp op, const void* in, const void* out, int64_t count,
                           DType dtype, comm::ReduceOp how, std::string_view label);
  progress::Call with_root(mesh::CollectiveOp op, int64_t count, DType dtype, int root,
                           std::string_view label);
  // Counts the message in `number`. The caller has checked the peer.
  static progress::Call message(mesh::CollectiveOp op, int64_t count, DType dtype, int peer,
                                std::string_view label, uint64_t& number);
  std::shared_ptr<progress::Operation> operation(progress::Lane& lane, progress::Call&& call);
  // `program` may be built from `op` in the same call: `op` is moved after both arguments exist.
  comm::WorkPtr start(std::shared_ptr<progress::Operation>&& op, progress::Program program);
  comm::WorkPtr start(progress::Call call, const void* in, void* out);  // with program_of
  // Ends the calls under way. Call it before any member of the group is destroyed. Returns whether
  // an exception ends the group; an exception in the world's group fails the job.
  bool close(std::vector<progress::Lane*> lanes);

  const std::shared_ptr<RankContext> context_;
  const std::vector<int> globals_;
  const int rank_;
  const int size_;
  const uint64_t key_;
  std::vector<RecordPtr> records_;  // its own, its parents', the job's
  progress::Lane collectives_;
  comm::TrafficCounter traffic_;
  std::atomic<std::chrono::milliseconds> timeout_;  // of calls from now on

 private:
  void log(progress::Operation& op) const;

  net::GroupKeys keys_;
  comm::LoggedCall logged_;  // the fields that all its calls share in the log
  uint64_t calls_ = 0;
  const waiting::Unwinding unwinding_;
};

// The communicator of these ranks of the job, on one host or several.
std::unique_ptr<comm::Communicator> make_group(std::shared_ptr<RankContext> context,
                                               std::vector<int> globals, int rank, uint64_t key,
                                               std::vector<RecordPtr> parents);

}  // namespace smp::groups
