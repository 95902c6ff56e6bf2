#include "groups/fork_guarded_communicator.h"

namespace smp::groups {
namespace {

class HeldWindow final : public comm::PeerWindow {
 public:
  HeldWindow(std::unique_ptr<comm::PeerWindow> window, int rank)
      : rank_(rank), window_(window.release()) {}

  void show() override { window().show(); }
  comm::WorkPtr gather(int64_t begin, int64_t stride, int64_t count, int64_t shown, void* out,
                       std::string_view label) override {
    return window().gather(begin, stride, count, shown, out, label);
  }

 private:
  comm::PeerWindow& window() const {
    window_.get_deleter().home.check(rank_);
    return *window_;
  }

  const int rank_;
  const waiting::OwnedByCreator<comm::PeerWindow> window_;
};

}  // namespace

std::unique_ptr<comm::PeerWindow> ForkGuardedCommunicator::open_window(const void* memory,
                                                                       int64_t count, DType dtype,
                                                                       std::string_view label) {
  auto window = group().open_window(memory, count, dtype, label);
  if (window == nullptr) return nullptr;
  return std::make_unique<HeldWindow>(std::move(window), rank_);
}

}  // namespace smp::groups
