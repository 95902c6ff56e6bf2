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
#include <vector>

#include "comm/on_paths.h"
#include "comm/processes.h"
#include "comm/sweep.h"
#include "comm/symmetric_buffer.h"
#include "comm/times.h"
#include "held_port.h"

// A rank is killed at a random moment of a call, on each path that bytes take. A few trials here;
// scripts/sweep-collectives deaths makes a thousand and prints when and what the survivors heard.
using namespace smp;
using namespace smp::testing;

namespace {

struct Moments {
  std::atomic<int> running{0};
  std::array<std::atomic<int64_t>, kRanks> raised_ns{};
};

class Trial {
 public:
  Trial(Path path, const char* call, uint32_t seed)
      : path_(path), call_(call), random_(seed), victim_(int(random_() % kRanks)) {}

  // Milliseconds until each survivor's call failed; `wrong` are what it should not have said.
  std::vector<double> run(std::vector<std::string>& wrong) {
    const HeldPort port;
    const std::string job_id = fresh_job_id();
    std::vector<Child> children;
    for (int rank = 0; rank < kRanks; ++rank)
      children.emplace_back([&, rank] { return call_until_it_fails(rank, job_id, port.number()); });
    const auto limit = std::chrono::steady_clock::now() + kNever;
    while (moments_->running.load() < kRanks && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 10000));
    const int64_t killed_ns = now_ns();
    kill(children[size_t(victim_)].pid(), SIGKILL);
    std::vector<double> times;
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::string said = children[size_t(rank)].join().said;
      if (rank == victim_) continue;
      if (!is_right(rank, said)) wrong.push_back(said);
      times.push_back(double(moments_->raised_ns[size_t(rank)].load() - killed_ns) * 1e-6);
    }
    return times;
  }

 private:
  std::string call_until_it_fails(int rank, const std::string& job_id, int port) const {
    const auto comm = connect_on(path_, rank, job_id, port, kNever);
    Buffer in(*comm, kCount * kRanks, path_ == Path::kDirect);
    Buffer out(*comm, kCount * kRanks, path_ == Path::kDirect);
    try {
      make(call_, *comm, in.data(), out.data());
      moments_->running.fetch_add(1);
      for (;;) make(call_, *comm, in.data(), out.data());
    } catch (const CommError& error) {
      moments_->raised_ns[size_t(rank)] = now_ns();
      return text_of(error);
    }
  }

  // Who died, where, and what this rank was in.
  bool is_right(int rank, const std::string& said) const {
    const std::string head = fmt::format("peer_lost {}: rank {}: ", victim_, rank);
    const std::string call = std::string(call_) + " #", taken = "recv #";
    const bool is_named =
        said.starts_with(head + call) || (call == "send #" && said.starts_with(head + taken));
    const std::string died = fmt::format("rank {} died", victim_);
    const std::string where =
        path_ == Path::kBetweenHosts ? fmt::format("{} (rank {} is on ", died, victim_) : died;
    return is_named && said.find(" 'x' of ") != std::string::npos &&
           said.find(where) != std::string::npos;
  }

  const Path path_;
  const char* const call_;
  std::mt19937 random_;
  const int victim_;
  const Shared<Moments> moments_;
};

}  // namespace

TEST_CASE("processes: death at a random moment of each call, on each path") {
  const int64_t trials = swept("SMP_COMM_SWEEP_DEATHS", 0);
  constexpr int64_t kCases = std::size(kPaths) * std::size(kCalls);
  std::map<std::string, std::vector<double>> times;
  int64_t survivors = 0, wrongly_told = 0;
  for (int64_t i = 0; i < std::max(trials, kCases); ++i) {
    const Path path = kPaths[i % std::size(kPaths)];
    if (!is_here(path)) continue;
    const char* const call = kCalls[i / std::size(kPaths) % std::size(kCalls)];
    std::vector<std::string> wrong;
    const std::vector<double> heard = Trial(path, call, uint32_t(i)).run(wrong);
    CAPTURE(name_of(path));
    CAPTURE(call);
    for (const std::string& said : wrong) FAIL_CHECK(said);
    // The targets hold on a quiet machine: asked of the sweep alone.
    const double soon = trials == 0                   ? kSoon.count() * 1e3
                        : path == Path::kBetweenHosts ? 5000.0
                                                      : 1000.0;
    for (const double time : heard) CHECK(time < soon);
    std::vector<double>& all = times[fmt::format("{:<24}{:<16}", name_of(path), call)];
    all.insert(all.end(), heard.begin(), heard.end());
    survivors += int64_t(heard.size());
    wrongly_told += int64_t(wrong.size());
  }
  if (trials == 0) return;
  fmt::print("{:<24}{:<16}{:>7}{:>12}{:>12}\n", "path", "call", "trials", "median ms", "most ms");
  for (const auto& [name, heard] : times)
    fmt::print("{}{:>7}{:>12.2f}{:>12.2f}\n", name, heard.size() / (kRanks - 1), median(heard),
               *std::max_element(heard.begin(), heard.end()));
  for (const Path path : kPaths) {
    std::vector<double> all;
    for (const auto& [name, heard] : times)
      if (name.starts_with(name_of(path))) all.insert(all.end(), heard.begin(), heard.end());
    if (all.empty()) continue;
    fmt::print("{:<40}{:>7}{:>12.2f}{:>12.2f}\n", name_of(path), all.size() / (kRanks - 1),
               median(all), *std::max_element(all.begin(), all.end()));
    if (path != Path::kBetweenHosts) CHECK(median(all) <= 50);
  }
  fmt::print("{} of {} survivors heard who had died, where, and in which call\n",
             survivors - wrongly_told, survivors);
}
