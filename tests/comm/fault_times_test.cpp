#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "comm/on_paths.h"
#include "comm/processes.h"
#include "comm/survivors.h"
#include "comm/sweep.h"
#include "comm/symmetric_buffer.h"
#include "comm/times.h"
#include "held_port.h"

// When ranks hear of what is no death, in every call and on each path that bytes take. For
// scripts/sweep-collectives faults alone: the times are those of a quiet machine, and
// processes_faults_test.cpp, mismatch_test.cpp and shrink_test.cpp try the same without them.
using namespace smp;
using namespace smp::testing;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kTimeOut{1000};  // of the calls that wait for a stopped rank
constexpr int kVictim = 2;

struct Heard {
  std::atomic<int> running{0};
  std::array<std::atomic<int64_t>, kRanks> begun_ns{}, heard_ns{};

  double seconds(int rank) const {
    return double(heard_ns[size_t(rank)].load() - begun_ns[size_t(rank)].load()) * 1e-9;
  }
};

// What four ranks say whose program is `run`, which a rank leaves with an error as a rule; then
// `after` begins with all of them running.
template <class Run, class After>
std::vector<std::string> said_by(Path path, milliseconds timeout, const Run& run,
                                 const After& after) {
  const HeldPort port;
  const std::string job_id = fresh_job_id();
  std::vector<Child> children;
  for (int rank = 0; rank < kRanks; ++rank)
    children.emplace_back([&, rank]() -> std::string {
      const auto comm = connect_on(path, rank, job_id, port.number(), timeout);
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
  Buffer in(comm, kCount * kRanks, is_direct), out(comm, kCount * kRanks, is_direct);
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

void wait_until_all_run(const Heard& heard) {
  const auto limit = std::chrono::steady_clock::now() + kNever;
  while (heard.running.load() < kRanks && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(milliseconds(1));
}

struct Row {
  std::vector<double> times;
  void print(const char* what, Path path) const {
    fmt::print("{:<24}{:<24}{:>7}{:>12.1f}{:>12.1f}{:>12.1f}\n", what, name_of(path), times.size(),
               1e3 * *std::min_element(times.begin(), times.end()), 1e3 * median(times),
               1e3 * *std::max_element(times.begin(), times.end()));
  }
};

// Only scripts/sweep-collectives faults runs them.
const doctest::skip is_sweep(swept("SMP_COMM_SWEEP_FAULTS", 0) == 0);

}  // namespace

TEST_CASE("processes: a rank that is stopped in any call is named when the time is over" *
          is_sweep) {
  const int64_t trials = swept("SMP_COMM_SWEEP_FAULTS", 0);
  for (const Path path : kPaths) {
    if (!is_here(path)) continue;
    Row row;
    for (int64_t trial = 0; trial < trials; ++trial) {
      const std::string call = kCalls[size_t(trial) % (std::size(kCalls) - 1)];  // of all ranks
      const Shared<Heard> heard;
      const auto said = said_by(
          path, kNever,
          [&](Communicator& comm) {
            comm.set_timeout(kTimeOut);
            return call_until_it_fails(comm, call, path == Path::kDirect, *heard);
          },
          [&](std::vector<Child>& children) {
            wait_until_all_run(*heard);
            kill(children[kVictim].pid(), SIGSTOP);
            const auto limit = std::chrono::steady_clock::now() + kSoon;
            const auto has_heard = [&](int rank) {
              return rank == kVictim || heard->heard_ns[size_t(rank)].load() != 0;
            };
            for (int rank = 0; rank < kRanks; ++rank)
              while (!has_heard(rank) && std::chrono::steady_clock::now() < limit)
                std::this_thread::sleep_for(milliseconds(1));
            kill(children[kVictim].pid(), SIGKILL);
          });
      for (int rank = 0; rank < kRanks; ++rank) {
        if (rank == kVictim) continue;
        CAPTURE(name_of(path));
        CAPTURE(call);
        CAPTURE(said[size_t(rank)]);
        CHECK(said[size_t(rank)].starts_with(fmt::format("timeout {}: rank ", kVictim)));
        CHECK(said[size_t(rank)].find("its last call") != std::string::npos);
        row.times.push_back(heard->seconds(rank));
        CHECK(std::abs(heard->seconds(rank) - 1) <= 0.25);
      }
    }
    if (!row.times.empty()) row.print("stopped, 1 s", path);
  }
}

TEST_CASE("processes: a call that does not match is heard of by all, with both descriptions" *
          is_sweep) {
  const int64_t trials = swept("SMP_COMM_SWEEP_FAULTS", 0);
  for (const Path path : kPaths) {
    if (!is_here(path)) continue;
    Row row;
    for (int64_t trial = 0; trial < trials; ++trial) {
      const std::string call = kCalls[size_t(trial) % (std::size(kCalls) - 1)];  // of all ranks
      const Shared<Heard> heard;
      const auto said = said_by(
          path, kNever,
          [&](Communicator& comm) {
            const bool is_direct = path == Path::kDirect;
            Buffer in(comm, kCount * kRanks, is_direct), out(comm, kCount * kRanks, is_direct);
            comm.barrier("start")->wait();
            const auto rank = size_t(comm.rank());
            heard->begun_ns[rank] = now_ns();
            try {
              make(call, comm, in.data(), out.data(), kCount - (rank == kVictim ? 8 : 0));
              comm.barrier("end")->wait();
            } catch (const CommError& error) {
              heard->heard_ns[rank] = now_ns();
              return text_of(error);
            }
            return std::string("nothing");
          },
          [](std::vector<Child>&) {});
      for (int rank = 0; rank < kRanks; ++rank) {
        CAPTURE(name_of(path));
        CAPTURE(call);
        CAPTURE(said[size_t(rank)]);
        CHECK(said[size_t(rank)].starts_with("mismatch "));
        CHECK(said[size_t(rank)].find(" does not match rank ") != std::string::npos);
        row.times.push_back(heard->seconds(rank));
        CHECK(heard->seconds(rank) <= 1);
      }
    }
    if (!row.times.empty()) row.print("no match", path);
  }
}

TEST_CASE("processes: the survivors of a death in any call go on in the same processes" *
          is_sweep) {
  const int64_t trials = swept("SMP_COMM_SWEEP_FAULTS", 0);
  for (const Path path : kPaths) {
    if (!is_here(path)) continue;
    Row row;
    for (int64_t trial = 0; trial < trials; ++trial) {
      const std::string call = kCalls[size_t(trial) % std::size(kCalls)];
      const Shared<Heard> heard;
      const Shared<std::array<std::atomic<int64_t>, kRanks>> went_on_ns;
      const auto said = said_by(
          path, kNever,
          [&](Communicator& comm) {
            (void)call_until_it_fails(comm, call, path == Path::kDirect, *heard);
            const Survivors rest = comm.shrink(kNever);
            use(*rest.world);
            (*went_on_ns)[size_t(comm.rank())] = now_ns();
            rest.world->barrier("end")->wait();
            return fmt::format("{} went on", fmt::join(rest.former, " "));
          },
          [&](std::vector<Child>& children) {
            wait_until_all_run(*heard);
            kill(children[kVictim].pid(), SIGKILL);
          });
      for (int rank = 0; rank < kRanks; ++rank) {
        if (rank == kVictim) continue;
        CAPTURE(name_of(path));
        CAPTURE(call);
        CHECK(said[size_t(rank)] == "0 1 3 went on");
        const int64_t from = heard->heard_ns[size_t(rank)].load();
        row.times.push_back(double((*went_on_ns)[size_t(rank)].load() - from) * 1e-9);
        CHECK(row.times.back() <= 2);
      }
    }
    if (!row.times.empty()) row.print("going on after a death", path);
  }
}
