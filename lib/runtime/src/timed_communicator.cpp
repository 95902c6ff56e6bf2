#include "smp/runtime/timed_communicator.h"

#include <utility>

namespace smp {
namespace {

class TimedWork final : public Work {
 public:
  TimedWork(WorkPtr inner, WaitClock& clock) : inner_(std::move(inner)), clock_(clock) {}

  bool done() override { return inner_->done(); }
  void wait() override {
    const auto start = std::chrono::steady_clock::now();
    inner_->wait();
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
    return std::make_shared<TimedWork>(inner_->gather(begin, stride, count, shown, out, label),
                                       clock_);
  }

 private:
  std::unique_ptr<PeerWindow> inner_;
  WaitClock& clock_;
};

}  // namespace

TimedCommunicator::TimedCommunicator(std::unique_ptr<Communicator> inner, WaitClock& clock)
    : owned_(std::move(inner)), inner_(*owned_), clock_(clock) {}

TimedCommunicator::TimedCommunicator(Communicator& inner, WaitClock& clock)
    : inner_(inner), clock_(clock) {}

WorkPtr TimedCommunicator::timed(WorkPtr work) {
  return std::make_shared<TimedWork>(std::move(work), clock_);
}

int TimedCommunicator::rank() const { return inner_.rank(); }
int TimedCommunicator::size() const { return inner_.size(); }
int TimedCommunicator::global_rank(int rank) const { return inner_.global_rank(rank); }

WorkPtr TimedCommunicator::all_reduce(const void* in, void* out, int64_t count, DType dtype,
                                      ReduceOp op, std::string_view label) {
  return timed(inner_.all_reduce(in, out, count, dtype, op, label));
}

WorkPtr TimedCommunicator::all_gather(const void* in, void* out, int64_t count, DType dtype,
                                      std::string_view label) {
  return timed(inner_.all_gather(in, out, count, dtype, label));
}

WorkPtr TimedCommunicator::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                          ReduceOp op, std::string_view label) {
  return timed(inner_.reduce_scatter(in, out, count, dtype, op, label));
}

WorkPtr TimedCommunicator::broadcast(void* buffer, int64_t count, DType dtype, int root,
                                     std::string_view label) {
  return timed(inner_.broadcast(buffer, count, dtype, root, label));
}

WorkPtr TimedCommunicator::send(const void* in, int64_t count, DType dtype, int peer,
                                std::string_view label) {
  return timed(inner_.send(in, count, dtype, peer, label));
}

WorkPtr TimedCommunicator::recv(void* out, int64_t count, DType dtype, int peer,
                                std::string_view label) {
  return timed(inner_.recv(out, count, dtype, peer, label));
}

WorkPtr TimedCommunicator::barrier(std::string_view label) { return timed(inner_.barrier(label)); }

std::unique_ptr<PeerWindow> TimedCommunicator::open_window(const void* memory, int64_t count,
                                                           DType dtype, std::string_view label) {
  std::unique_ptr<PeerWindow> window = inner_.open_window(memory, count, dtype, label);
  if (window == nullptr) return nullptr;
  return std::make_unique<TimedPeerWindow>(std::move(window), clock_);
}

std::unique_ptr<Communicator> TimedCommunicator::split(const std::vector<int>& members) {
  return std::make_unique<TimedCommunicator>(inner_.split(members), clock_);
}

void TimedCommunicator::abort(const std::string& reason) { inner_.abort(reason); }
std::vector<TrafficCount> TimedCommunicator::traffic() const { return inner_.traffic(); }
int64_t TimedCommunicator::segment_bytes() const { return inner_.segment_bytes(); }

std::shared_ptr<std::byte[]> TimedCommunicator::allocate_symmetric(int64_t bytes) {
  return inner_.allocate_symmetric(bytes);
}

}  // namespace smp
