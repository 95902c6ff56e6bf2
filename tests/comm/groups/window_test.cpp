#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/processes.h"
#include "comm/symmetric_buffer.h"
#include "comm/times.h"
#include "comm/values.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::testing;

namespace {

float element(int version, int rank, int64_t i) {
  return float(version * 1000000 + rank * 100000 + int(i));
}

void write(Buffer& memory, int version, int rank, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) memory[i] = element(version, rank, i);
}

// What a rank's CommError says while `call` runs.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& e) {
    return text_of(e);
  }
  return "no error";
}

}  // namespace

TEST_CASE("a window gives what all ranks have written, version by version") {
  for (const int size : {2, 3, 5, 8})
    run_ranks(size, [&](Communicator& comm) {
      constexpr int64_t kCount = 70001, kBegin = 30, kPart = 40000, kStride = 11;
      Buffer memory(comm, kCount, true), all(comm, kPart * size, false);
      for (int opened = 1; opened <= 2; ++opened) {
        const auto window = comm.open_window(memory.data(), kCount, DType::kF32, "w");
        REQUIRE(window != nullptr);
        for (int version = 1; version <= 4; ++version) {
          write(memory, version, comm.rank(), 0, kCount);
          window->show();
          window->gather(kBegin, kStride, kPart, version, all.data(), "g")->wait();
          int64_t wrong = 0;
          for (int rank = 0; rank < size; ++rank)
            for (int64_t i = 0; i < kPart; ++i)
              wrong += all[rank * kPart + i] != element(version, rank, kBegin + rank * kStride + i);
          CHECK(wrong == 0);
          comm.barrier("read by all")->wait();
        }
      }
    });
}

TEST_CASE("what is gathered in its place stays there, and gathers are under way at once") {
  run_ranks(3, [&](Communicator& comm) {
    constexpr int64_t kPart = 30000, kWholes = 4;
    Buffer memory(comm, 3 * kPart * kWholes, true);
    const auto window = comm.open_window(memory.data(), 3 * kPart * kWholes, DType::kF32, "w");
    std::vector<WorkPtr> works;
    for (int64_t whole = 0; whole < kWholes; ++whole) {  // shown one after the other
      const int64_t begin = whole * 3 * kPart, own = begin + comm.rank() * kPart;
      write(memory, 1, 0, own, own + kPart);
      window->show();
      works.push_back(window->gather(begin, kPart, kPart, whole + 1, memory.data() + begin, "g"));
    }
    for (const WorkPtr& work : works) work->wait();
    int64_t wrong = 0;
    for (int64_t i = 0; i < 3 * kPart * kWholes; ++i) wrong += memory[i] != element(1, 0, i);
    CHECK(wrong == 0);
    comm.barrier("read by all")->wait();
    const auto traffic = comm.traffic();
    REQUIRE(traffic.size() == 3);
    CHECK(traffic[0].label == "g");
    CHECK(traffic[0].calls == kWholes);
    CHECK(traffic[0].wire_bytes ==
          kWholes * wire_bytes(CollectiveOp::kAllGather, 3, comm.rank(), kPart, 4));
    CHECK(traffic[2].label == "w");
    CHECK(traffic[2].wire_bytes == 0);
  });
}

TEST_CASE("nobody waits for a rank that has shown its memory") {
  std::atomic<int> done{0};
  run_ranks(4, [&](Communicator& comm) {
    Buffer memory(comm, 20000, true), all(comm, 80000, false);
    const auto window = comm.open_window(memory.data(), 20000, DType::kF32, "w");
    write(memory, 1, comm.rank(), 0, 20000);
    window->show();
    if (comm.rank() == 2) {
      while (done.load() < 3) std::this_thread::yield();
    }
    window->gather(0, 0, 20000, 1, all.data(), "g")->wait();
    CHECK(all[79999] == element(1, 3, 19999));
    done.fetch_add(1);
    comm.barrier("read by all")->wait();
  });
}

TEST_CASE("there is no window to memory that some rank's peers cannot read") {
  run_ranks(3, [&](Communicator& comm) {
    Buffer memory(comm, 100, comm.rank() != 1);
    CHECK(comm.open_window(memory.data(), 100, DType::kF32, "w") == nullptr);
  });
  run_ranks(1, [&](Communicator& comm) {
    Buffer memory(comm, 100, true);
    CHECK(comm.open_window(memory.data(), 100, DType::kF32, "w") == nullptr);
  });
}

TEST_CASE("windows that do not match are told from each other") {
  std::string errors[2];
  run_ranks(2, [&](Communicator& comm) {
    Buffer memory(comm, 200, true);
    errors[comm.rank()] = error_of(
        [&] { comm.open_window(memory.data(), 100 + 10 * comm.rank(), DType::kF32, "w"); });
  });
  for (const std::string& error : errors)
    CHECK(error ==
          "mismatch 1: rank 0: barrier #1 'w' of 100 fp32 does not match rank 1: barrier #1 'w' of "
          "110 fp32");
}

TEST_CASE("a rank that does not show its memory in time is named") {
  std::string errors[3];
  std::atomic<int> ended{0};
  std::atomic<bool> called{false};
  run_ranks(3,
            [&](Communicator& comm) {
              Buffer memory(comm, 100, true), all(comm, 300, false);
              const auto window = comm.open_window(memory.data(), 100, DType::kF32, "w");
              if (comm.rank() == 1) {
                while (ended.load() < 2) std::this_thread::yield();
                return;
              }
              window->show();
              while (comm.rank() == 0 && !called) std::this_thread::yield();
              if (comm.rank() == 0) comm.set_timeout(std::chrono::milliseconds(300));
              errors[comm.rank()] = error_of([&] {
                const WorkPtr work = window->gather(0, 0, 100, 1, all.data(), "g");
                called = called || comm.rank() == 2;
                work->wait();
              });
              ended.fetch_add(1);
            },
            {kNever});
  const std::string text =
      "all_gather #1 'g' of 100 fp32 timed out after 0.3 s: rank 1 has not made this call (its "
      "last call: #1 barrier 'w')";
  CHECK(errors[0].find(text) != std::string::npos);
  CHECK(errors[2].find(text) != std::string::npos);
}

TEST_CASE("a rank that leaves without showing its memory is named") {
  std::string error;
  std::atomic<bool> has_gone{false};  // and says so; to others a barrier ends a moment before
  run_ranks(2, [&](Communicator& world) {
    auto pair = world.split({0, 1});
    Buffer memory(world, 100, true), all(world, 200, false);
    auto window = pair->open_window(memory.data(), 100, DType::kF32, "w");
    if (world.rank() == 1) {
      window.reset();
      pair.reset();
      world.barrier("gone")->wait();
      has_gone.store(true);
      return;
    }
    world.barrier("gone")->wait();
    while (!has_gone.load()) std::this_thread::yield();
    error = error_of([&] { window->gather(0, 0, 100, 1, all.data(), "g")->wait(); });
  });
  CHECK(error ==
        "peer_lost 1: rank 0: all_gather #1 'g' of 100 fp32: rank 1 has left the group without "
        "making the call (its last call: #1 barrier 'gone')");
}

TEST_CASE("processes: death of a rank whose window others read") {
  for (int trial = 0; trial < 4; ++trial) {
    const auto outcomes = run_processes(3, [&](Communicator& comm) {
      std::thread killer;
      Buffer memory(comm, 300000, true), all(comm, 900000, false);
      const auto window = comm.open_window(memory.data(), 300000, DType::kF32, "w");
      comm.barrier("start")->wait();
      if (comm.rank() == trial % 3)
        killer = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(500 + trial * 3700));
          raise(SIGKILL);
        });
      for (int version = 1;; ++version) {
        window->show();
        window->gather(0, 0, 300000, version, all.data(), "g")->wait();
      }
      return std::string();
    });
    const std::string victim = std::to_string(trial % 3);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == trial % 3) continue;
      const std::string& said = outcomes[size_t(rank)].said;
      CHECK(said.rfind("peer_lost " + victim + ": rank " + std::to_string(rank), 0) == 0);
      CHECK(said.find("rank " + victim + " died") != std::string::npos);
    }
  }
}
