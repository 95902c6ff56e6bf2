#include "smp/comm/recording.h"

#include <numeric>
#include <utility>

#include "arguments.h"
#include "traffic_counter.h"

namespace smp::comm {
namespace {

class NoWork final : public Work {
 public:
  bool done() override { return true; }
  void wait() override {}
};

class AbortedWork final : public Work {
 public:
  explicit AbortedWork(std::string text) : text_(std::move(text)) {}
  bool done() override { throw CommError(CommError::Kind::kAborted, -1, text_); }
  void wait() override { done(); }

 private:
  std::string text_;
};

class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(std::vector<int> globals, int rank, std::shared_ptr<Recording> recording)
      : globals_(std::move(globals)), rank_(rank), recording_(std::move(recording)) {}

  int rank() const override { return rank_; }
  int size() const override { return int(globals_.size()); }
  int global_rank(int rank) const override {
    check_rank(rank, size());
    return globals_[size_t(rank)];
  }

  WorkPtr all_reduce(const void*, void*, int64_t count, DType dtype, ReduceOp,
                     std::string_view label) override {
    return record(mesh::CollectiveOp::kAllReduce, count, dtype, label);
  }
  WorkPtr all_gather(const void*, void*, int64_t count, DType dtype,
                     std::string_view label) override {
    return record(mesh::CollectiveOp::kAllGather, count, dtype, label);
  }
  WorkPtr reduce_scatter(const void*, void*, int64_t count, DType dtype, ReduceOp,
                         std::string_view label) override {
    check_divisible(label, count, size());
    return record(mesh::CollectiveOp::kReduceScatter, count, dtype, label);
  }
  WorkPtr broadcast(void*, int64_t count, DType dtype, int root, std::string_view label) override {
    return rooted(mesh::CollectiveOp::kBroadcast, count, dtype, root, label);
  }
  WorkPtr reduce(const void*, void*, int64_t count, DType dtype, ReduceOp, int root,
                 std::string_view label) override {
    return rooted(mesh::CollectiveOp::kReduce, count, dtype, root, label);
  }
  WorkPtr gather(const void*, void*, int64_t count, DType dtype, int root,
                 std::string_view label) override {
    return rooted(mesh::CollectiveOp::kGather, count, dtype, root, label);
  }
  WorkPtr scatter(const void*, void*, int64_t count, DType dtype, int root,
                  std::string_view label) override {
    return rooted(mesh::CollectiveOp::kScatter, count, dtype, root, label);
  }
  WorkPtr all_to_all(const void*, void*, int64_t count, DType dtype,
                     std::string_view label) override {
    return record(mesh::CollectiveOp::kAllToAll, count, dtype, label);
  }
  WorkPtr send(const void*, int64_t count, DType dtype, int peer, std::string_view label) override {
    check_peer(mesh::CollectiveOp::kSend, label, peer, rank_, size());
    return record(mesh::CollectiveOp::kSend, count, dtype, label, peer);
  }
  WorkPtr recv(void*, int64_t count, DType dtype, int peer, std::string_view label) override {
    check_peer(mesh::CollectiveOp::kRecv, label, peer, rank_, size());
    return record(mesh::CollectiveOp::kRecv, count, dtype, label, peer);
  }
  WorkPtr barrier(std::string_view label) override {
    return record(mesh::CollectiveOp::kBarrier, 0, DType::kU8, label);
  }

  std::unique_ptr<Communicator> split(const std::vector<int>& members) override {
    const int place = place_in(members, rank_, size());
    std::vector<int> globals;
    for (const int member : members) globals.push_back(globals_[size_t(member)]);
    return std::make_unique<RecordingCommunicator>(std::move(globals), place, recording_);
  }

  void set_timeout(std::chrono::milliseconds) override {}  // nothing takes any time
  void abort(const std::string& reason) override { aborted_ = "aborted: " + reason; }
  std::vector<TrafficCount> traffic() const override { return traffic_.counts(size()); }
  int64_t segment_bytes() const override { return smp::mesh::segment_bytes(size()); }
  std::shared_ptr<std::byte[]> allocate_symmetric(int64_t bytes) override {
    return std::make_shared<std::byte[]>(static_cast<size_t>(bytes));
  }

 private:
  WorkPtr rooted(mesh::CollectiveOp op, int64_t count, DType dtype, int root,
                 std::string_view label) {
    check_root(op, label, root, size());
    return record(op, count, dtype, label, root);
  }

  WorkPtr record(mesh::CollectiveOp op, int64_t count, DType dtype, std::string_view label,
                 int peer = -1) {
    check_count(op, label, count);
    if (!aborted_.empty()) return std::make_shared<AbortedWork>(aborted_);
    const int64_t wire = wire_bytes(op, size(), rank_, count, bytes_of(dtype), peer);
    traffic_.add(std::string(label), op, wire);
    recording_->add({std::string(label), op, globals_, count, dtype, wire, peer});
    return std::make_shared<NoWork>();
  }

  const std::vector<int> globals_;
  const int rank_;
  const std::shared_ptr<Recording> recording_;
  std::string aborted_;
  TrafficCounter traffic_;
};

}  // namespace

void Recording::add(RecordedCall call) {
  std::lock_guard guard(mutex_);
  calls_.push_back(std::move(call));
}

std::vector<RecordedCall> Recording::calls() const {
  std::lock_guard guard(mutex_);
  return calls_;
}

std::unique_ptr<Communicator> make_recording_communicator(int rank, int size,
                                                          std::shared_ptr<Recording> recording) {
  check_rank(rank, size);
  std::vector<int> globals(static_cast<size_t>(size));
  std::iota(globals.begin(), globals.end(), 0);
  return std::make_unique<RecordingCommunicator>(std::move(globals), rank, std::move(recording));
}

}  // namespace smp::comm
