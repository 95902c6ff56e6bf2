#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/on_paths.h"
#include "comm/processes.h"
#include "comm/sweep.h"
#include "comm/symmetric_buffer.h"
#include "comm/times.h"
#include "held_port.h"

// A rank is killed at a random moment of a call, on each path that bytes take. Forty trials here;
// scripts/sweep-collectives deaths makes a thousand and prints when and what the survivors heard.
using namespace smp;
using namespace smp::comm;
using namespace smp::mesh;
using namespace smp::net;
using namespace smp::testing;

namespace {

struct Moments {
  std::atomic<int> running{0};
  std::array<std::atomic<int64_t>, kMostRanks> raised_ns{};
};

class Trial {
 public:
  Trial(Path path, int ranks, const std::string& call, int64_t count, uint32_t seed)
      : path_(path),
        ranks_(ranks),
        call_(call),
        count_(count),
        random_(seed),
        victim_(int(random_() % uint32_t(ranks))) {}

  // Milliseconds until each survivor's call failed; `wrong` are what it should not have said.
  std::vector<double> run(std::vector<std::string>& wrong) {
    const HeldPort port;
    const std::string job_id = fresh_job_id();
    std::vector<Child> children;
    for (int rank = 0; rank < ranks_; ++rank)
      children.emplace_back([&, rank] { return call_until_it_fails(rank, job_id, port.number()); });
    const auto limit = std::chrono::steady_clock::now() + kNever;
    while (moments_->running.load() < ranks_ && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 10000));
    const int64_t killed_ns = now_ns();
    kill(children[size_t(victim_)].pid(), SIGKILL);
    std::vector<double> times;
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::string said = children[size_t(rank)].join().said;
      if (rank == victim_) continue;
      if (!is_right(rank, said)) wrong.push_back(said);
      times.push_back(double(moments_->raised_ns[size_t(rank)].load() - killed_ns) * 1e-6);
    }
    return times;
  }

 private:
  std::string call_until_it_fails(int rank, const std::string& job_id, int port) const {
    const auto comm = connect_on(path_, rank, ranks_, job_id, port, kNever);
    Buffer in(*comm, count_ * ranks_, path_ == Path::kDirect);
    Buffer out(*comm, count_ * ranks_, path_ == Path::kDirect);
    try {
      make(call_, *comm, in.data(), out.data(), count_);
      moments_->running.fetch_add(1);
      for (;;) make(call_, *comm, in.data(), out.data(), count_);
    } catch (const CommError& error) {
      moments_->raised_ns[size_t(rank)] = now_ns();
      return text_of(error);
    }
  }

  // Who died, where, and what this rank was in.
  bool is_right(int rank, const std::string& said) const {
    const std::string head = fmt::format("peer_lost {}: rank {}: ", victim_, rank);
    const std::string call = name_in_errors(call_);
    const bool is_named = said.starts_with(head + call + " #") ||
                          (call == "send" && said.starts_with(head + "recv #"));
    const std::string label = call == "barrier" ? " 'x'" : " 'x' of ";
    const std::string died = fmt::format("rank {} died", victim_);
    const std::string where =
        path_ == Path::kBetweenHosts ? fmt::format("{} (rank {} is on ", died, victim_) : died;
    return is_named && said.find(label) != std::string::npos &&
           said.find(where) != std::string::npos;
  }

  const Path path_;
  const int ranks_;
  const std::string call_;
  const int64_t count_;  // of each rank's part
  std::mt19937 random_;
  const int victim_;
  const Shared<Moments> moments_;
};

// When the survivors of how many deaths heard.
struct Heard {
  int64_t trials = 0;
  std::vector<double> ms;

  void add(const std::vector<double>& more) {
    ++trials;
    ms.insert(ms.end(), more.begin(), more.end());
  }
  void print(const std::string& path, const std::string& what) const {
    fmt::print("{:<20}{:<16}{:>7}{:>12.2f}{:>12.2f}\n", path, what, trials, median(ms),
               *std::max_element(ms.begin(), ms.end()));
  }
};

}  // namespace

TEST_CASE("processes: death at a random moment of each call, on each path, of 2 to 8 ranks") {
  const int64_t trials = swept("SMP_COMM_SWEEP_DEATHS", 0);
  constexpr int64_t kTrials = 40;
  std::map<Path, Heard> by_path;
  std::map<std::pair<Path, std::string>, Heard> by_call;
  std::map<std::pair<Path, int>, Heard> by_ranks;
  int64_t survivors = 0, wrongly_told = 0;
  for (int64_t i = 0; i < std::max(trials, kTrials); ++i) {
    // 3 paths, 11 calls, 5 numbers of ranks and 2 lengths: all of them meet within 330 trials.
    const Path path = kPaths[i % int64_t(std::size(kPaths))];
    const std::string call = kCalls[size_t(i) / std::size(kPaths) % kCalls.size()];
    const int ranks = kNumbersOfRanks[size_t(i) % std::size(kNumbersOfRanks)];
    const int64_t count = i % 2 == 0 ? kCount : 5 * kCount;
    if (!may_die_on(path)) continue;
    std::vector<std::string> wrong;
    const std::vector<double> heard = Trial(path, ranks, call, count, uint32_t(i)).run(wrong);
    CAPTURE(name_of(path));
    CAPTURE(call);
    CAPTURE(ranks);
    CAPTURE(count);
    for (const std::string& said : wrong) FAIL_CHECK(said);
    // The targets hold on a quiet machine: asked of the sweep alone.
    const double soon = trials == 0                   ? kSoon.count() * 1e3
                        : path == Path::kBetweenHosts ? 5000.0
                                                      : 1000.0;
    for (const double time : heard) CHECK(time < soon);
    by_path[path].add(heard);
    by_call[{path, call}].add(heard);
    by_ranks[{path, ranks}].add(heard);
    survivors += int64_t(heard.size());
    wrongly_told += int64_t(wrong.size());
  }
  if (trials == 0) return;
  fmt::print("{:<20}{:<16}{:>7}{:>12}{:>12}\n", "path", "", "trials", "median ms", "most ms");
  for (const auto& [of, heard] : by_call) heard.print(name_of(of.first), of.second);
  for (const auto& [of, heard] : by_ranks)
    heard.print(name_of(of.first), fmt::format("{} ranks", of.second));
  for (const auto& [path, heard] : by_path) {
    heard.print(name_of(path), "all");
    if (path != Path::kBetweenHosts) CHECK(median(heard.ms) <= 50);
  }
  fmt::print("{} of {} survivors heard who had died, where, and in which call\n",
             survivors - wrongly_told, survivors);
}
