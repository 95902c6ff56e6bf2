#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "smp/comm/jobs/job_environment.h"

// A device that computes 20 layers of 5 ms while its rank sleeps; after each a bucket of 25 MiB of
// gradients is there, which all ranks sum. How much of the reductions computing does not hide, and
// what a rank's engine takes of a CPU while there is nothing to do.
//
//   smp-launch -n 4 -- fake_device [ROUNDS [network]]     network: each rank takes the others for
//                                                          other hosts
//
// Exit code 1 where a step takes a tenth longer than the larger of computing and communication,
// where more than 15 % of these is exposed though computing takes twice as long, or where an idle
// engine takes 1 % of a CPU.

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kLayers = 20;
constexpr milliseconds kLayer{5}, kIdle{3000};
constexpr int64_t kBucket = (25 << 20) / 4;  // elements of fp32
constexpr double kMostExposed = 0.15, kMostOfLarger = 1.10, kMostIdle = 0.01;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

class Rank {
 public:
  explicit Rank(Communicator& world) : world_(world) {
    for (int i = 0; i < kLayers; ++i) {
      buckets_.push_back(world.allocate_symmetric(kBucket * 4));
      std::fill_n(reinterpret_cast<float*>(buckets_.back().get()), kBucket, 1.0f);
    }
  }

  // Seconds of a step of the slowest rank.
  double step(bool computes, bool reduces) {
    world_.barrier("step")->wait();
    const auto begin = Clock::now();
    auto next = begin;
    std::vector<WorkPtr> works;
    for (const auto& bucket : buckets_) {
      if (computes) std::this_thread::sleep_until(next += kLayer);
      if (!reduces) continue;
      auto* const values = reinterpret_cast<float*>(bucket.get());
      works.push_back(
          world_.all_reduce(values, values, kBucket, DType::kF32, ReduceOp::kAverage, "gradients"));
      if (!computes) works.back()->wait();
    }
    for (const WorkPtr& work : works) work->wait();
    return slowest(std::chrono::duration<double>(Clock::now() - begin).count());
  }

  // Of a CPU, by the busiest rank, while all sleep: without a call, or with one that cannot end.
  double idle_share(bool has_call) {
    world_.barrier("idle")->wait();
    float value = 0;
    WorkPtr work;
    const bool waits = has_call && world_.rank() > 0;  // for rank 0
    if (waits) work = world_.recv(&value, 1, DType::kF32, 0, "pending");
    std::this_thread::sleep_for(milliseconds(200));
    const double before = cpu_seconds();
    std::this_thread::sleep_for(kIdle);
    const double share = (cpu_seconds() - before) / std::chrono::duration<double>(kIdle).count();
    for (int to = 1; has_call && world_.rank() == 0 && to < world_.size(); ++to)
      world_.send(&value, 1, DType::kF32, to, "pending")->wait();
    if (waits) work->wait();
    return slowest(share);
  }

 private:
  double slowest(double value) {
    world_.all_reduce(&value, &value, 1, DType::kF64, ReduceOp::kMax, "slowest")->wait();
    return value;
  }

  Communicator& world_;
  std::vector<std::shared_ptr<std::byte[]>> buckets_;
};

bool measure(Communicator& world, int rounds) {
  Rank rank(world);
  std::vector<double> computing, communication, both;
  for (int round = -1; round < rounds; ++round) {  // the first warms up
    const double times[] = {rank.step(true, false), rank.step(false, true), rank.step(true, true)};
    if (round < 0) continue;
    computing.push_back(times[0]);
    communication.push_back(times[1]);
    both.push_back(times[2]);
  }
  const double c = median(computing), r = median(communication), t = median(both);
  const double of_larger = t / std::max(c, r), exposed = (t - c) / r;
  const double idle = rank.idle_share(false), pending = rank.idle_share(true);
  const bool counts = c >= 2 * r;
  const bool good = of_larger <= kMostOfLarger && (!counts || exposed <= kMostExposed) &&
                    idle < kMostIdle && pending < kMostIdle;
  if (world.rank() == 0)
    fmt::print(
        "{} ranks: computing {:.1f} ms, communication {:.1f} ms, both {:.1f} ms: {:.2f} of the "
        "larger, {:.1f} % exposed{}; an engine takes {:.2f} % of a CPU without a call, {:.2f} % "
        "with one that waits{}\n",
        world.size(), 1e3 * c, 1e3 * r, 1e3 * t, of_larger, 100 * exposed,
        counts ? "" : " (computing is not twice as long)", 100 * idle, 100 * pending,
        good ? "" : ": beyond a limit");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  try {
    if (rounds < 1) throw std::runtime_error("ROUNDS is at least 1");
    JobEnvironment job = read_job_environment("fake_device");
    if (argc > 2 && argv[2] != std::string("network"))
      throw std::runtime_error(fmt::format("there is no '{}', only network", argv[2]));
    if (argc > 2) job.host_identity = fmt::format("host {}", job.rank);
    const auto world = connect(job, [](const std::string&) {});
    const bool good = measure(*world, rounds);
    world->barrier("end")->wait();
    return good ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fake_device: %s\n", error.what());
    return 125;
  }
}
