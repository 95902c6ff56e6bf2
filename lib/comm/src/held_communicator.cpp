#include "held_communicator.h"

#include <utility>

namespace smp::shm {
namespace {

class HeldWindow final : public PeerWindow {
 public:
  HeldWindow(std::unique_ptr<PeerWindow> window, int rank)
      : window_(window.release()), rank_(rank) {}

  void show() override {
    check();
    window_->show();
  }
  WorkPtr gather(int64_t begin, int64_t stride, int64_t count, int64_t shown, void* out,
                 std::string_view label) override {
    check();
    return window_->gather(begin, stride, count, shown, out, label);
  }

 private:
  void check() const { window_.get_deleter().home.check(rank_); }

  const OwnedAtHome<PeerWindow> window_;
  const int rank_;
};

}  // namespace

WorkPtr HeldCommunicator::pass(const Call& call) {
  check();
  return WrappedCommunicator::pass(call);
}

std::unique_ptr<PeerWindow> HeldCommunicator::open_window(const void* memory, int64_t count,
                                                          DType dtype, std::string_view label) {
  check();
  auto window = inner().open_window(memory, count, dtype, label);
  if (window == nullptr) return nullptr;
  return std::make_unique<HeldWindow>(std::move(window), global_rank(rank()));
}

std::unique_ptr<Communicator> HeldCommunicator::split(const std::vector<int>& members) {
  check();
  return inner().split(members);
}

void HeldCommunicator::set_timeout(std::chrono::milliseconds timeout) {
  check();
  inner().set_timeout(timeout);
}

void HeldCommunicator::abort(const std::string& reason) {
  check();
  inner().abort(reason);
}

std::optional<CommError> HeldCommunicator::error() const {
  check();
  return WrappedCommunicator::error();
}

Survivors HeldCommunicator::shrink(std::chrono::milliseconds limit) {
  check();
  return inner().shrink(limit);
}

std::vector<TrafficCount> HeldCommunicator::traffic() const {
  check();
  return WrappedCommunicator::traffic();
}

std::shared_ptr<std::byte[]> HeldCommunicator::allocate_symmetric(int64_t bytes) {
  check();
  return inner().allocate_symmetric(bytes);
}

}  // namespace smp::shm
