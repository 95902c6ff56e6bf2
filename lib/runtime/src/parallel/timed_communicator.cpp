#include "smp/runtime/parallel/timed_communicator.h"

#include <utility>

#include "smp/plan/runinfo/progress_page.h"
#include "smp/plan/runinfo/step_trace.h"

namespace smp::parallel {
namespace {

// Adds its lifetime to a sum.
class Counting {
 public:
  explicit Counting(std::chrono::nanoseconds* sum)
      : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  ~Counting() {
    if (sum_ != nullptr) *sum_ += std::chrono::steady_clock::now() - start_;
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  std::chrono::nanoseconds* const sum_;  // null: none
  const std::chrono::steady_clock::time_point start_;
};

bool is_collective(mesh::CollectiveOp op) {
  return op != mesh::CollectiveOp::kSend && op != mesh::CollectiveOp::kRecv;
}

// Ends the call's slice in the trace, if it has one.
void end_slice(const WaitClock& clock, size_t slice) {
  if (slice != runinfo::StepTracer::kNone) clock.tracer->end(slice);
}

// Its lifetime is the rank's wait for the call of that slice.
class Waiting {
 public:
  Waiting(WaitClock& clock, bool is_exposed, size_t call = runinfo::StepTracer::kNone)
      : clock_(clock),
        slice_(clock.tracer != nullptr ? clock.tracer->begin_wait(call)
                                       : runinfo::StepTracer::kNone),
        waited_(&clock.waited),
        exposed_(is_exposed ? &clock.exposed : nullptr) {
    if (clock_.post != nullptr) clock_.post->wait(true);
  }
  ~Waiting() {
    end_slice(clock_, slice_);
    if (clock_.post != nullptr) clock_.post->wait(false);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  WaitClock& clock_;
  const size_t slice_;
  const Counting waited_, exposed_;
};

// To be called before the call itself, which may block or end the process.
void post_call(const WaitClock& clock, std::string_view label) {
  if (clock.post != nullptr) clock.post->begin_collective(label);
}

class TimedWork final : public comm::Work {
 public:
  TimedWork(comm::WorkPtr inner, WaitClock& clock, bool is_exposed, size_t slice)
      : inner_(std::move(inner)), clock_(clock), slice_(slice), is_exposed_(is_exposed) {}

  bool done() override {
    const bool is_done = inner_->done();
    if (is_done) end_slice(clock_, slice_);
    return is_done;
  }
  void wait() override {
    {
      const Waiting waiting(clock_, is_exposed_, slice_);
      inner_->wait();
    }
    end_slice(clock_, slice_);
  }

 private:
  comm::WorkPtr inner_;
  WaitClock& clock_;
  const size_t slice_;
  const bool is_exposed_;
};

class TimedPeerWindow final : public comm::PeerWindow {
 public:
  TimedPeerWindow(std::unique_ptr<comm::PeerWindow> inner, WaitClock& clock, mesh::Axis axis,
                  int members, DType dtype)
      : inner_(std::move(inner)), clock_(clock), axis_(axis), members_(members), dtype_(dtype) {}

  void show() override { inner_->show(); }
  comm::WorkPtr gather(int64_t begin, int64_t stride, int64_t count, int64_t shown, void* out,
                       std::string_view label) override {
    post_call(clock_, label);
    size_t slice = runinfo::StepTracer::kNone;
    if (clock_.tracer != nullptr)
      slice = clock_.tracer->begin_call(mesh::CollectiveOp::kAllGather, axis_, label,
                                        count * bytes_of(dtype_), members_, -1);
    const Counting exposed(&clock_.exposed);
    return std::make_shared<TimedWork>(inner_->gather(begin, stride, count, shown, out, label),
                                       clock_, true, slice);
  }

 private:
  std::unique_ptr<comm::PeerWindow> inner_;
  WaitClock& clock_;
  const mesh::Axis axis_;
  const int members_;
  const DType dtype_;
};

bool has_peer(mesh::CollectiveOp op) {
  switch (op) {
    case mesh::CollectiveOp::kSend:
    case mesh::CollectiveOp::kRecv:
    case mesh::CollectiveOp::kBroadcast:
    case mesh::CollectiveOp::kReduce:
    case mesh::CollectiveOp::kGather:
    case mesh::CollectiveOp::kScatter: return true;
    default: return false;
  }
}

}  // namespace

TimedCommunicator::TimedCommunicator(std::unique_ptr<comm::Communicator> inner, WaitClock& clock,
                                     mesh::Axis axis)
    : comm::WrappedCommunicator(std::move(inner)), clock_(clock), axis_(axis) {}

TimedCommunicator::TimedCommunicator(comm::Communicator& inner, WaitClock& clock, mesh::Axis axis)
    : comm::WrappedCommunicator(inner), clock_(clock), axis_(axis) {}

comm::WorkPtr TimedCommunicator::pass(const Call& call) {
  post_call(clock_, call.label);
  size_t slice = runinfo::StepTracer::kNone;
  if (clock_.tracer != nullptr)
    slice = clock_.tracer->begin_call(call.op, axis_, call.label, call.count * bytes_of(call.dtype),
                                      size(), has_peer(call.op) ? global_rank(call.peer) : -1);
  const bool is_exposed = is_collective(call.op);
  const Counting exposed(is_exposed ? &clock_.exposed : nullptr);
  return std::make_shared<TimedWork>(comm::WrappedCommunicator::pass(call), clock_, is_exposed,
                                     slice);
}

std::unique_ptr<comm::PeerWindow> TimedCommunicator::open_window(const void* memory, int64_t count,
                                                                 DType dtype,
                                                                 std::string_view label) {
  post_call(clock_, label);
  std::unique_ptr<comm::PeerWindow> window;
  {
    const Waiting for_all(clock_, true);
    window = inner().open_window(memory, count, dtype, label);
  }
  if (window == nullptr) return nullptr;
  return std::make_unique<TimedPeerWindow>(std::move(window), clock_, axis_, size(), dtype);
}

std::unique_ptr<comm::Communicator> TimedCommunicator::split(const std::vector<int>& members) {
  return split_along(axis_, members);
}

std::unique_ptr<comm::Communicator> TimedCommunicator::split_along(
    mesh::Axis axis, const std::vector<int>& members) {
  return std::make_unique<TimedCommunicator>(inner().split(members), clock_, axis);
}

}  // namespace smp::parallel
