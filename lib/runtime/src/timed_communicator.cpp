#include "smp/runtime/timed_communicator.h"

#include <utility>

#include "smp/plan/progress_page.h"

namespace smp {
namespace {

class TimedWork final : public Work {
 public:
  TimedWork(WorkPtr inner, WaitClock& clock) : inner_(std::move(inner)), clock_(clock) {}

  bool done() override { return inner_->done(); }
  void wait() override {
    const auto start = std::chrono::steady_clock::now();
    if (clock_.post != nullptr) clock_.post->wait(true);
    inner_->wait();
    if (clock_.post != nullptr) clock_.post->wait(false);
    clock_.waited += std::chrono::steady_clock::now() - start;
  }

 private:
  WorkPtr inner_;
  WaitClock& clock_;
};

class TimedPeerWindow final : public PeerWindow {
 public:
  TimedPeerWindow(std::unique_ptr<PeerWindow> inner, WaitClock& clock)
      : inner_(std::move(inner)), clock_(clock) {}

  void show() override { inner_->show(); }
  WorkPtr gather(int64_t begin, int64_t stride, int64_t count, int64_t shown, void* out,
                 std::string_view label) override {
    if (clock_.post != nullptr) clock_.post->begin_collective(label);
    return std::make_shared<TimedWork>(inner_->gather(begin, stride, count, shown, out, label),
                                       clock_);
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

WorkPtr TimedCommunicator::wrap(WorkPtr work, const Passed& call) {
  if (clock_.post != nullptr) clock_.post->begin_collective(call.label);
  return std::make_shared<TimedWork>(std::move(work), clock_);
}

std::unique_ptr<PeerWindow> TimedCommunicator::open_window(const void* memory, int64_t count,
                                                           DType dtype, std::string_view label) {
  std::unique_ptr<PeerWindow> window = inner().open_window(memory, count, dtype, label);
  if (window == nullptr) return nullptr;
  return std::make_unique<TimedPeerWindow>(std::move(window), clock_);
}

std::unique_ptr<Communicator> TimedCommunicator::split(const std::vector<int>& members) {
  return std::make_unique<TimedCommunicator>(inner().split(members), clock_);
}

}  // namespace smp
