#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "smp/comm/jobs/job_environment.h"

// A rank of four, each on a host of its own: 0, 1 and 2 reduce among themselves while rank 3 takes
// what they send to it late, or not at all. What it holds up must be its own messages alone.
//
//   smp-launch --hosts h[0-3] --via local -- slow_receiver ROUNDS    0: it takes nothing before the
//   others are through; else their times

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kSlow = 3;
constexpr int64_t kMessage = 128 << 10;  // bytes
constexpr int kMessages = 16;            // from each: four times its credits
constexpr milliseconds kPause{20};       // between two that rank 3 takes
constexpr milliseconds kSettle{100};     // until what has credits has gone
constexpr int64_t kReduced = 64 << 10;   // elements of fp32
constexpr int kReductions = 50;

class Rank {
 public:
  explicit Rank(Communicator& world) : world_(world), bytes_(kMessage), values_(kReduced, 1) {
    if (world.rank() != kSlow) fast_ = world.split({0, 1, 2});
  }

  // Of the three, for one reduction.
  double reduce_us() {
    const auto begin = Clock::now();
    for (int i = 0; i < kReductions && fast_; ++i)
      fast_
          ->all_reduce(values_.data(), values_.data(), kReduced, DType::kF32, ReduceOp::kAverage,
                       "fast")
          ->wait();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / kReductions;
  }
  void send_all() {
    for (int i = 0; i < kMessages && fast_; ++i)
      sent_.push_back(world_.send(bytes_.data(), kMessage, DType::kU8, kSlow, "slow"));
  }
  void wait_for_sent() {
    for (const WorkPtr& work : sent_) work->wait();
    sent_.clear();
  }
  void take_all(milliseconds pause) {
    for (int i = 0; i < kMessages && !fast_; ++i)
      for (int from = 0; from < kSlow; ++from) {
        std::this_thread::sleep_for(pause);
        world_.recv(bytes_.data(), kMessage, DType::kU8, from, "slow")->wait();
      }
  }
  void meet() { world_.barrier("meet")->wait(); }

 private:
  Communicator& world_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
  std::unique_ptr<Communicator> fast_;
  std::vector<WorkPtr> sent_;
};

// Rank 3 comes to the meeting first, and takes its messages behind it.
void stopped(Rank& rank) {
  rank.send_all();
  rank.reduce_us();
  rank.meet();
  rank.take_all(milliseconds(0));
  rank.wait_for_sent();
  rank.meet();
}

double slowed(Rank& rank, bool slow) {
  rank.meet();
  if (slow) rank.send_all();
  std::this_thread::sleep_for(kSettle);
  double us = 0;
  if (slow) rank.take_all(kPause);
  us = rank.reduce_us();
  rank.wait_for_sent();
  return us;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 0;
  try {
    JobEnvironment job = read_job_environment("slow_receiver");
    job.host_identity = fmt::format("host {}", job.rank);
    const auto world = connect(job, [](const std::string&) {});
    Rank rank(*world);
    stopped(rank);
    std::vector<double> alone, beside;
    for (int round = 0; round < rounds; ++round) {
      alone.push_back(slowed(rank, false));
      beside.push_back(slowed(rank, true));
    }
    rank.meet();
    if (world->rank() == 0) fmt::print("while rank 3 took nothing: good\n");
    if (world->rank() == 0 && rounds > 0) {
      const double ratio = median(beside) / median(alone);
      fmt::print(
          "all_reduce of 256 KiB among 3 of 4 ranks: {:.0f} us; while rank 3 takes {} KiB every {} "
          "ms: {:.0f} us, {:.2f} times (target 1.10), medians of {} rounds\n",
          median(alone), kMessage >> 10, kPause.count(), median(beside), ratio, rounds);
      return ratio > 1.1 ? 1 : 0;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
