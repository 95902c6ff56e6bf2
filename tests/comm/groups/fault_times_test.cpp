#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/differences.h"
#include "comm/on_paths.h"
#include "comm/processes.h"
#include "comm/survivors.h"
#include "comm/sweep.h"
#include "comm/symmetric_buffer.h"
#include "comm/times.h"
#include "held_port.h"

// When ranks hear of what is no death, in every call and on each path that bytes take. All of it by
// scripts/sweep-collectives faults, whose times are those of a quiet machine; in every run of the
// tests a few, which have to be in time once.
using namespace smp;
using namespace smp::comm;
using namespace smp::mesh;
using namespace smp::net;
using namespace smp::testing;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kTimeOut{1000};  // of the calls that wait for a stopped rank

// Neither the first nor the last of more than two; the root of two and three.
int victim_of(int ranks) { return ranks / 2; }

struct Heard {
  std::atomic<int> running{0};
  std::array<std::atomic<int64_t>, kMostRanks> begun_ns{}, heard_ns{};

  double seconds(int rank) const {
    return double(heard_ns[size_t(rank)].load() - begun_ns[size_t(rank)].load()) * 1e-9;
  }
};

// What ranks say whose program is `run`, which a rank leaves with an error as a rule; then
// `after` begins with all of them running.
template <class Run, class After>
std::vector<std::string> said_by(Path path, int ranks, milliseconds timeout, const Run& run,
                                 const After& after) {
  const HeldPort port;
  const std::string job_id = fresh_job_id();
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank)
    children.emplace_back([&, rank]() -> std::string {
      const auto comm = connect_on(path, rank, ranks, job_id, port.number(), timeout);
      return run(*comm);
    });
  after(children);
  std::vector<std::string> said;
  for (Child& child : children) said.push_back(child.join().said);
  return said;
}

// Calls until a call fails; when that was begun, and when it failed.
std::string call_until_it_fails(Communicator& comm, const std::string& call, bool is_direct,
                                Heard& heard) {
  Buffer in(comm, kCount * comm.size(), is_direct), out(comm, kCount * comm.size(), is_direct);
  const auto rank = size_t(comm.rank());
  try {
    for (bool first = true;; first = false) {
      heard.begun_ns[rank] = now_ns();
      make(call, comm, in.data(), out.data());
      if (first) heard.running.fetch_add(1);
    }
  } catch (const CommError& error) {
    heard.heard_ns[rank] = now_ns();
    return text_of(error);
  }
}

void wait_until_all_run(const Heard& heard, int ranks) {
  const auto limit = std::chrono::steady_clock::now() + kNever;
  while (heard.running.load() < ranks && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(milliseconds(1));
}

// One rank of four stops before a call of all, whose time-out the others have. What the slowest of
// them took to hear of it; a year where one was told something else, as on a machine so busy that
// others do not answer in time or the silence of 3 s is heard of first.
double milliseconds_to_hear_of_a_stop(Path path, milliseconds timeout) {
  constexpr int kFour = 4, kVictim = 2;
  constexpr double kYear = 3e10;
  const Shared<Heard> heard;
  const auto said = said_by(
      path, kFour, kNever,
      [&](Communicator& comm) {
        comm.barrier("start")->wait();
        if (comm.rank() == kVictim) raise(SIGSTOP);
        comm.set_timeout(timeout);
        return call_until_it_fails(comm, "all_reduce", path == Path::kDirect, *heard);
      },
      [&](std::vector<Child>& children) {
        const auto limit = std::chrono::steady_clock::now() + kSoon;
        const auto has_heard = [&](int rank) {
          return rank == kVictim || heard->heard_ns[size_t(rank)].load() != 0;
        };
        for (int rank = 0; rank < kFour; ++rank)
          while (!has_heard(rank) && std::chrono::steady_clock::now() < limit)
            std::this_thread::sleep_for(milliseconds(1));
        kill(children[kVictim].pid(), SIGKILL);
      });
  double most = 0;
  bool is_named = true;
  for (int rank = 0; rank < kFour; ++rank) {
    if (rank == kVictim) continue;
    const std::string& text = said[size_t(rank)];
    most = std::max(most, 1e3 * heard->seconds(rank));
    is_named &=
        text.starts_with(fmt::format("timeout {}: rank {}: all_reduce #2", kVictim, rank)) &&
        text.find("its last call: #1 barrier 'start'") != std::string::npos;
    if (!is_named) MESSAGE(text);
  }
  if (is_named)
    CHECK(most >= double(timeout.count()));  // the first of all has taken all of its time
  return is_named ? most : kYear;
}

// One rank calls otherwise than the others. How long each took to hear of it, from its own begin.
std::vector<double> times_of_a_difference(Path path, int ranks, const Difference& difference,
                                          int odd) {
  const Shared<Heard> heard;
  const auto said = said_by(
      path, ranks, kNever,
      [&](Communicator& comm) {
        comm.barrier("start")->wait();
        const auto rank = size_t(comm.rank());
        heard->begun_ns[rank] = now_ns();
        try {
          run_calls(comm, comm.rank() == odd ? difference.odd : difference.usual,
                    path == Path::kDirect);
        } catch (const CommError& error) {
          heard->heard_ns[rank] = now_ns();
          return text_of(error);
        }
        return std::string("nothing");
      },
      [](std::vector<Child>&) {});
  std::vector<double> times;
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(name_of(path));
    CHECK(wrong_with(said[size_t(rank)], difference, ranks) == "");
    times.push_back(heard->seconds(rank));
  }
  return times;
}

struct Row {
  std::vector<double> times;

  void add(const std::vector<double>& more) { times.insert(times.end(), more.begin(), more.end()); }
  double most() const { return *std::max_element(times.begin(), times.end()); }
  void print(const char* what, Path path, int ranks) const {
    if (times.empty()) return;
    fmt::print("{:<24}{:<18}{:>6}{:>7}{:>12.1f}{:>12.1f}{:>12.1f}\n", what, name_of(path), ranks,
               times.size(), 1e3 * *std::min_element(times.begin(), times.end()),
               1e3 * median(times), 1e3 * most());
  }
};

void on_each_path(bool (*is_possible)(Path),
                  const std::function<void(Path path, int ranks)>& body) {
  for (const Path path : kPaths)
    for (const int ranks : kNumbersOfRanks)
      if (is_possible(path)) body(path, ranks);
}

// Only scripts/sweep-collectives faults runs them.
const doctest::skip is_sweep(swept("SMP_COMM_SWEEP_FAULTS", 0) == 0);

}  // namespace

TEST_CASE("processes: a stopped rank is named when half a second is over, on each path") {
  for (const Path path : kPaths) {
    if (!may_die_on(path)) continue;
    CAPTURE(name_of(path));
    CHECK(is_once_within(milliseconds(3000),
                         [&] { return milliseconds_to_hear_of_a_stop(path, milliseconds(500)); }));
  }
}

TEST_CASE("processes: what differs between hosts is heard of within a second, by libfabric too") {
  if (!is_here(Path::kBetweenHosts)) return;
  constexpr int kFour = 4;
  for (const Difference& difference : all_differences(kFour - 1)) {
    const std::string what = difference.what;
    const bool is_tried = what == "count" || what == "root" || what == "order";
    if (!is_tried || difference.usual[0].op != CollectiveOp::kReduce) continue;
    CAPTURE(text_of(difference));
    CHECK(is_once_within(kHeard, [&] {
      return 1e3 * Row{times_of_a_difference(Path::kBetweenHosts, kFour, difference, 2)}.most();
    }));
  }
}

TEST_CASE("processes: a rank that is stopped in any call is named when the time is over" *
          is_sweep) {
  const int64_t trials = swept("SMP_COMM_SWEEP_FAULTS", 0);
  on_each_path(may_die_on, [&](Path path, int ranks) {
    const int victim = victim_of(ranks);
    Row row;
    for (int64_t trial = 0; trial < trials; ++trial) {
      const std::string call = kCallsOfAll[size_t(trial) % kCallsOfAll.size()];
      const Shared<Heard> heard;
      const auto said = said_by(
          path, ranks, kNever,
          [&](Communicator& comm) {
            comm.set_timeout(kTimeOut);
            return call_until_it_fails(comm, call, path == Path::kDirect, *heard);
          },
          [&](std::vector<Child>& children) {
            wait_until_all_run(*heard, ranks);
            kill(children[victim].pid(), SIGSTOP);
            const auto limit = std::chrono::steady_clock::now() + kSoon;
            const auto has_heard = [&](int rank) {
              return rank == victim || heard->heard_ns[size_t(rank)].load() != 0;
            };
            for (int rank = 0; rank < ranks; ++rank)
              while (!has_heard(rank) && std::chrono::steady_clock::now() < limit)
                std::this_thread::sleep_for(milliseconds(1));
            kill(children[victim].pid(), SIGKILL);
          });
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank == victim) continue;
        CAPTURE(name_of(path));
        CAPTURE(call);
        CAPTURE(ranks);
        CAPTURE(said[size_t(rank)]);
        const std::string& text = said[size_t(rank)];
        const double seconds = heard->seconds(rank);
        CHECK(text.starts_with(fmt::format("timeout {}: rank ", victim)));
        CHECK(text.find("its last call") != std::string::npos);
        row.times.push_back(seconds);
        CHECK(seconds >= 0.75);
        CHECK(seconds <= 1.25);
      }
    }
    row.print("stopped, 1 s", path, ranks);
  });
}

TEST_CASE("processes: a call that does not match is heard of by all, whatever differs" * is_sweep) {
  on_each_path(is_here, [&](Path path, int ranks) {
    const std::vector<Difference> differences = all_differences(ranks - 1);
    const auto trials =
        std::max(swept("SMP_COMM_SWEEP_FAULTS", 0), int64_t(differences.size()));  // each once
    Row row;
    for (int64_t trial = 0; trial < trials; ++trial) {
      const Difference& difference = differences[size_t(trial) % differences.size()];
      row.add(
          times_of_a_difference(path, ranks, difference, trial % 2 == 0 ? victim_of(ranks) : 0));
      CAPTURE(ranks);
      CAPTURE(text_of(difference));
      CHECK(row.most() <= 1);
    }
    row.print("no match", path, ranks);
  });
}

TEST_CASE("processes: the survivors of a death in any call go on in the same processes" *
          is_sweep) {
  const int64_t trials = swept("SMP_COMM_SWEEP_FAULTS", 0);
  on_each_path(may_die_on, [&](Path path, int ranks) {
    const int victim = victim_of(ranks);
    Row row;
    for (int64_t trial = 0; trial < trials; ++trial) {
      const std::string call = kCalls[size_t(trial) % kCalls.size()];
      const Shared<Heard> heard;
      const Shared<std::array<std::atomic<int64_t>, kMostRanks>> went_on_ns;
      const auto said = said_by(
          path, ranks, kNever,
          [&](Communicator& comm) {
            (void)call_until_it_fails(comm, call, path == Path::kDirect, *heard);
            const Survivors rest = comm.shrink(kNever);
            use(*rest.world);
            (*went_on_ns)[size_t(comm.rank())] = now_ns();
            rest.world->barrier("end")->wait();
            return fmt::format("{} went on", fmt::join(rest.former, " "));
          },
          [&](std::vector<Child>& children) {
            wait_until_all_run(*heard, ranks);
            kill(children[victim].pid(), SIGKILL);
          });
      std::vector<int> former(static_cast<size_t>(ranks));
      std::iota(former.begin(), former.end(), 0);
      former.erase(former.begin() + victim);
      for (const int rank : former) {
        CAPTURE(name_of(path));
        CAPTURE(call);
        CAPTURE(ranks);
        CHECK(said[size_t(rank)] == fmt::format("{} went on", fmt::join(former, " ")));
        const int64_t from = heard->heard_ns[size_t(rank)].load();
        row.times.push_back(double((*went_on_ns)[size_t(rank)].load() - from) * 1e-9);
        CHECK(row.times.back() <= 2);
      }
    }
    row.print("going on after a death", path, ranks);
  });
}
