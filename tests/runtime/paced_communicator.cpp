#include "runtime/paced_communicator.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

#include "smp/plan/mesh/collective.h"

namespace smp {
namespace {

class VirtualClock final : public BenchClock {
 public:
  double now_s() override { return now_s_; }
  void wait_until(double time_s) override { now_s_ = std::max(now_s_, time_s); }

 private:
  double now_s_ = 0;
};

class WallClock final : public BenchClock {
 public:
  double now_s() override { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void wait_until(double time_s) override {
    std::this_thread::sleep_until(start_ + std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(time_s)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
};

class CpuClock final : public BenchClock {
 public:
  double now_s() override {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec) + added_s_;
  }
  void wait_until(double time_s) override { added_s_ += std::max(0.0, time_s - now_s()); }
  void turn_back(double time_s) override { added_s_ -= now_s() - time_s; }

 private:
  double added_s_ = 0;
};

class PacedWork final : public comm::Work {
 public:
  PacedWork(comm::WorkPtr inner, PacedLink& link, double done_at_s)
      : inner_(std::move(inner)), link_(link), done_at_s_(done_at_s) {}

  // What the link has carried is waited for: whether a call is done does not depend on how quick
  // the peers' threads are.
  bool done() override {
    if (link_.clock.now_s() < done_at_s_) return false;
    inner_->wait();
    return true;
  }

  void wait() override {
    const double start_s = link_.clock.now_s();
    inner_->wait();
    link_.clock.turn_back(start_s);
    link_.clock.wait_until(done_at_s_);
    link_.waited_s += link_.clock.now_s() - start_s;
  }

 private:
  comm::WorkPtr inner_;
  PacedLink& link_;
  const double done_at_s_;
};

}  // namespace

std::unique_ptr<BenchClock> virtual_clock() { return std::make_unique<VirtualClock>(); }
std::unique_ptr<BenchClock> wall_clock() { return std::make_unique<WallClock>(); }
std::unique_ptr<BenchClock> cpu_clock() { return std::make_unique<CpuClock>(); }

comm::WorkPtr PacedCommunicator::pass(const Call& call) {
  comm::WorkPtr work = comm::WrappedCommunicator::pass(call);
  const int64_t bytes =
      mesh::wire_bytes(call.op, size(), rank(), call.count, bytes_of(call.dtype), call.peer);
  const double seconds = link_.latency_s + static_cast<double>(bytes) / link_.bytes_per_s;
  link_.free_at_s = std::max(link_.free_at_s, link_.clock.now_s()) + seconds;
  link_.busy_s += seconds;
  return std::make_shared<PacedWork>(std::move(work), link_, link_.free_at_s);
}

std::unique_ptr<comm::Communicator> PacedCommunicator::split(const std::vector<int>& members) {
  return std::make_unique<PacedCommunicator>(inner().split(members), link_);
}

}  // namespace smp
