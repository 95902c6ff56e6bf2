#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/fabric_ranks.h"
#include "comm/processes.h"
#include "comm/survivors.h"
#include "comm/times.h"

// Of ranks of several hosts that die or are stopped: what the others say, and how they go on.
using namespace smp;
using namespace smp::comm;
using namespace smp::net;
using namespace smp::testing;
using std::chrono::milliseconds;

namespace {

// Ranks that call until something ends them, or until they are told that it is enough; and how
// many of them are at it.
class Endless {
 public:
  RankProgram program() const {
    return [this](Communicator& comm) -> std::string {
      std::vector<float> x(100000);
      for (bool first = true;; first = false) {
        x[0] = float(*enough_);
        comm.all_reduce(x.data(), x.data(), 100000, DType::kF32, ReduceOp::kSum, "x")->wait();
        if (first) running_->fetch_add(1);
        if (x[0] > 0) return "good";
      }
    };
  }
  void wait_for(int ranks) const {
    const auto limit = std::chrono::steady_clock::now() + kNever;
    while (running_->load() < ranks && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(milliseconds(10));
    REQUIRE(running_->load() == ranks);
  }
  void end() const { *enough_ = true; }

 private:
  const Shared<std::atomic<int>> running_;
  const Shared<std::atomic<bool>> enough_;
};

}  // namespace

TEST_CASE("a rank that dies ends the calls of all hosts, which hear who and where it was" *
          doctest::test_suite("by either protocol")) {
  if (!has_network() || !outlives_deaths()) return;
  for (const int victim : {0, 1, 3}) {
    const Endless endless;
    auto children = start(4, 2, endless.program());
    endless.wait_for(4);
    const auto killed = std::chrono::steady_clock::now();
    kill(children[victim].pid(), SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      const std::string said = children[rank].join().said;
      if (rank == victim) continue;
      CAPTURE(said);
      CHECK(said.find(fmt::format("peer_lost {}: rank {}: all_reduce #", victim, rank)) == 0);
      CHECK(said.find(fmt::format("rank {} died (rank {} is on ", victim, victim)) !=
            std::string::npos);
    }
    CHECK(std::chrono::steady_clock::now() - killed < kSoon);
  }
}

TEST_CASE("a rank that is stopped ends the calls of all hosts") {
  if (!has_network() || !outlives_deaths()) return;
  for (const int victim : {0, 2}) {
    const Endless endless;
    auto children = start(3, 1, endless.program());
    endless.wait_for(3);
    const auto stopped = std::chrono::steady_clock::now();
    kill(children[victim].pid(), SIGSTOP);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const std::string said = children[rank].join().said;
      CAPTURE(said);
      CHECK(said.find(fmt::format("peer_lost {}: rank {}: all_reduce #", victim, rank)) == 0);
      // Who is kept from its CPU for long may find it by its messages first.
      CHECK((said.find("has sent nothing for 3 s") != std::string::npos ||
             said.find("no message has come from rank") != std::string::npos));
    }
    CHECK(std::chrono::steady_clock::now() - stopped < kSoon);
    kill(children[victim].pid(), SIGKILL);
    kill(children[victim].pid(), SIGCONT);
    children[victim].join();
  }
}

TEST_CASE("a rank that is stopped before a call is named with its last one, whoever waits for it") {
  if (!has_network() || !outlives_deaths()) return;
  auto said_after = [](milliseconds timeout) {
    const Shared<std::atomic<int>> started;
    auto children = start(4, 2, [&](Communicator& comm) -> std::string {
      comm.barrier("start")->wait();
      if (comm.rank() != 3) {
        started->fetch_add(1);
      } else {
        while (started->load() < 3) std::this_thread::sleep_for(milliseconds(1));
        raise(SIGSTOP);
      }
      comm.set_timeout(timeout);
      comm.barrier("next")->wait();
      return "good";
    });
    std::vector<std::string> said;
    for (int rank = 0; rank < 3; ++rank) said.push_back(children[rank].join().said);
    kill(children[3].pid(), SIGKILL);
    children[3].join();
    return said;
  };
  // Names the one that is stopped, in words of a rank of its host or of another, or by its silence.
  auto is_right = [](int rank, const std::string& said) {
    const size_t stopped = said.find("rank 3");
    return said.find(fmt::format("3: rank {}: barrier #2 'next'", rank)) != std::string::npos &&
           (said.find("#1 barrier 'start')", stopped) != std::string::npos ||
            said.find("has sent nothing for 3 s", stopped) != std::string::npos);
  };
  // Again with more time if the machine is too busy for the others to have called meanwhile.
  bool all_right = false;
  std::vector<std::string> said;
  for (milliseconds timeout{200}; timeout < kSoon && !all_right; timeout *= 8) {
    said = said_after(timeout);
    all_right = true;
    for (int rank = 0; rank < 3; ++rank) all_right &= is_right(rank, said[size_t(rank)]);
  }
  CHECK_MESSAGE(all_right, fmt::format("{}", fmt::join(said, "\n")));
}

TEST_CASE("ranks that were all stopped, as on a machine that stood still, blame nobody") {
  if (!has_network() || !outlives_deaths()) return;
  const Endless endless;
  auto ranks = start(3, 1, endless.program(),
                     [](FabricOptions& options) { options.silence = milliseconds(2000); });
  endless.wait_for(3);
  for (Child& child : ranks.children) kill(child.pid(), SIGSTOP);
  std::this_thread::sleep_for(milliseconds(3000));
  for (Child& child : ranks.children) kill(child.pid(), SIGCONT);
  std::this_thread::sleep_for(milliseconds(300));  // they look for silent ones
  endless.end();
  for (const std::string& said : join(ranks)) CHECK(said == "good");
}

TEST_CASE("after a death those who are left of several hosts go on in the same processes") {
  if (!has_network() || !outlives_deaths()) return;
  const std::vector<std::vector<int>> dead = {{0}, {3}, {2, 3}, {0, 1}};
  for (const std::vector<int>& victims : dead) {
    auto is_dead = [&](int rank) {
      return std::find(victims.begin(), victims.end(), rank) != victims.end();
    };
    auto children = start(4, 2, [&](Communicator& comm) {
      if (is_dead(comm.rank())) {
        try {
          comm.barrier("start")->wait();
        } catch (const CommError&) {
        }
        raise(SIGKILL);
      }
      return go_on_after(comm, use);
    });
    std::vector<int> former;
    for (int rank = 0; rank < 4; ++rank)
      if (!is_dead(rank)) former.push_back(rank);
    const auto said = join(children);
    for (const int rank : former)
      CHECK(said[size_t(rank)] == fmt::format("{} went on", fmt::join(former, " ")));
  }
}

TEST_CASE("a stopped rank is left behind, and hears so when it goes on") {
  if (!has_network() || !outlives_deaths()) return;
  const Endless endless;
  auto children = start(
      3, 1,
      [&](Communicator& comm) {
        try {
          endless.program()(comm);
        } catch (const CommError&) {
        }
        const Survivors rest = comm.shrink(milliseconds(6000));
        use(*rest.world);
        return fmt::format("{} went on", fmt::join(rest.former, " "));
      },
      [](FabricOptions& options) { options.silence = milliseconds(1500); });
  endless.wait_for(3);
  kill(children[0].pid(), SIGSTOP);
  for (const int rank : {1, 2}) CHECK(children[rank].join().said == "1 2 went on");
  kill(children[0].pid(), SIGCONT);
  const std::string said = children[0].join().said;
  CAPTURE(said);
  CHECK((said == "0 went on" || said.find("timeout") == 0));
}
