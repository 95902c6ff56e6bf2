#include "smp/runtime/timed_communicator.h"

#include <utility>

#include "smp/plan/progress_page.h"

namespace smp {
namespace {

// While it lives its time counts.
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

bool is_collective(CollectiveOp op) {
  return op != CollectiveOp::kSend && op != CollectiveOp::kRecv;
}

// While it lives the rank waits.
class Waiting {
 public:
  Waiting(WaitClock& clock, bool is_exposed)
      : clock_(clock), waited_(&clock.waited), exposed_(is_exposed ? &clock.exposed : nullptr) {
    if (clock_.post != nullptr) clock_.post->wait(true);
  }
  ~Waiting() {
    if (clock_.post != nullptr) clock_.post->wait(false);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  WaitClock& clock_;
  const Counting waited_, exposed_;
};

// Before the call itself, which may do all of its work, or die in it.
void post_call(const WaitClock& clock, std::string_view label) {
  if (clock.post != nullptr) clock.post->begin_collective(label);
}

class TimedWork final : public Work {
 public:
  TimedWork(WorkPtr inner, WaitClock& clock, bool is_exposed)
      : inner_(std::move(inner)), clock_(clock), is_exposed_(is_exposed) {}

  bool done() override { return inner_->done(); }
  void wait() override {
    const Waiting waiting(clock_, is_exposed_);
    inner_->wait();
  }

 private:
  WorkPtr inner_;
  WaitClock& clock_;
  const bool is_exposed_;
};

class TimedPeerWindow final : public PeerWindow {
 public:
  TimedPeerWindow(std::unique_ptr<PeerWindow> inner, WaitClock& clock)
      : inner_(std::move(inner)), clock_(clock) {}

  void show() override { inner_->show(); }
  WorkPtr gather(int64_t begin, int64_t stride, int64_t count, int64_t shown, void* out,
                 std::string_view label) override {
    post_call(clock_, label);
    const Counting exposed(&clock_.exposed);
    return std::make_shared<TimedWork>(inner_->gather(begin, stride, count, shown, out, label),
                                       clock_, true);
  }

 private:
  std::unique_ptr<PeerWindow> inner_;
  WaitClock& clock_;
};

}  // namespace

TimedCommunicator::TimedCommunicator(std::unique_ptr<Communicator> inner, WaitClock& clock)
    : WrappedCommunicator(std::move(inner)), clock_(clock) {}

TimedCommunicator::TimedCommunicator(Communicator& inner, WaitClock& clock)
    : WrappedCommunicator(inner), clock_(clock) {}

WorkPtr TimedCommunicator::pass(const Call& call) {
  post_call(clock_, call.label);
  const bool is_exposed = is_collective(call.op);
  const Counting exposed(is_exposed ? &clock_.exposed : nullptr);
  return std::make_shared<TimedWork>(WrappedCommunicator::pass(call), clock_, is_exposed);
}

std::unique_ptr<PeerWindow> TimedCommunicator::open_window(const void* memory, int64_t count,
                                                           DType dtype, std::string_view label) {
  post_call(clock_, label);
  std::unique_ptr<PeerWindow> window;
  {
    const Waiting for_all(clock_, true);
    window = inner().open_window(memory, count, dtype, label);
  }
  if (window == nullptr) return nullptr;
  return std::make_unique<TimedPeerWindow>(std::move(window), clock_);
}

std::unique_ptr<Communicator> TimedCommunicator::split(const std::vector<int>& members) {
  return std::make_unique<TimedCommunicator>(inner().split(members), clock_);
}

}  // namespace smp
