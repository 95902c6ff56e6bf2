#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "comm/processes.h"
#include "comm/sweep.h"
#include "smp/comm/thread_group.h"

using namespace smp;
using namespace smp::testing;

namespace {

// A call under way with its buffers and what must be in them at the end.
struct Pending {
  WorkPtr work;
  std::vector<int64_t> in, out;
  std::function<int64_t(int64_t)> expected;  // by index of out
};

int64_t element(uint64_t call, int rank, int64_t i) {
  return int64_t(call * 1000003) + rank * 7919 + i;
}

// The same random calls on every rank, up to four under way; returns how many elements were wrong.
int64_t random_calls(Communicator& comm, uint32_t seed, int calls) {
  std::mt19937 random(seed);
  const int size = comm.size(), rank = comm.rank();
  std::deque<std::unique_ptr<Pending>> under_way;
  int64_t wrong = 0;
  auto finish_first = [&] {
    Pending& p = *under_way.front();
    p.work->wait();
    for (size_t i = 0; i < p.out.size(); ++i) wrong += p.out[i] != p.expected(int64_t(i));
    under_way.pop_front();
  };
  for (uint64_t call = 0; call < uint64_t(calls); ++call) {
    const int kind = int(random() % 9), root = int(random() % uint32_t(size));
    const int64_t limit = int64_t(1) << (random() % 17);
    const int64_t count = int64_t(random() % uint32_t(limit));
    const size_t window = random() % 4;
    auto p = std::make_unique<Pending>();
    auto fill = [&](std::vector<int64_t>& to, int64_t n) {
      to.resize(size_t(n));
      for (int64_t i = 0; i < n; ++i) to[size_t(i)] = element(call, rank, i);
    };
    auto sum = [=](int64_t i) {
      int64_t total = 0;
      for (int r = 0; r < size; ++r) total += element(call, r, i);
      return total;
    };
    const DType dtype = DType::kI64;
    switch (kind) {
      case 0:
        fill(p->in, count);
        p->out.resize(size_t(count));
        p->work = comm.all_reduce(p->in.data(), p->out.data(), count, dtype, ReduceOp::kSum, "r");
        p->expected = sum;
        break;
      case 1:
        fill(p->in, count);
        p->out.resize(size_t(count * size));
        p->work = comm.all_gather(p->in.data(), p->out.data(), count, dtype, "g");
        p->expected = [=](int64_t i) { return element(call, int(i / count), i % count); };
        break;
      case 2:
        fill(p->in, count * size);
        p->out.resize(size_t(count));
        p->work = comm.reduce_scatter(p->in.data(), p->out.data(), count * size, dtype,
                                      ReduceOp::kSum, "s");
        p->expected = [=](int64_t i) { return sum(count * rank + i); };
        break;
      case 3:
        fill(p->out, count);
        p->work = comm.broadcast(p->out.data(), count, dtype, root, "b");
        p->expected = [=](int64_t i) { return element(call, root, i); };
        break;
      case 4:
        fill(p->in, count);
        p->out.resize(size_t(rank == root ? count : 0));
        p->work = comm.reduce(p->in.data(), p->out.data(), count, dtype, ReduceOp::kSum, root, "o");
        p->expected = sum;
        break;
      case 5:
        fill(p->in, count);
        p->out.resize(size_t(rank == root ? count * size : 0));
        p->work = comm.gather(p->in.data(), p->out.data(), count, dtype, root, "c");
        p->expected = [=](int64_t i) { return element(call, int(i / count), i % count); };
        break;
      case 6:
        if (rank == root) fill(p->in, count * size);
        p->out.resize(size_t(count));
        p->work = comm.scatter(p->in.data(), p->out.data(), count, dtype, root, "d");
        p->expected = [=](int64_t i) { return element(call, root, count * rank + i); };
        break;
      case 7:
        fill(p->in, count * size);
        p->out.resize(size_t(count * size));
        p->work = comm.all_to_all(p->in.data(), p->out.data(), count, dtype, "a");
        p->expected = [=](int64_t i) {
          return element(call, int(i / count), count * rank + i % count);
        };
        break;
      default: {
        if (size == 1) continue;
        const int from = (rank + size - 1) % size;
        auto message = std::make_unique<Pending>();
        fill(message->in, count);
        message->work = comm.send(message->in.data(), count, dtype, (rank + 1) % size, "m");
        under_way.push_back(std::move(message));
        p->out.resize(size_t(count));
        p->work = comm.recv(p->out.data(), count, dtype, from, "m");
        p->expected = [=](int64_t i) { return element(call, from, i); };
      }
    }
    under_way.push_back(std::move(p));
    while (under_way.size() > window) finish_first();
  }
  while (!under_way.empty()) finish_first();
  return wrong;
}

}  // namespace

TEST_CASE("random calls, several under way, in three groups from two threads") {
  const auto rounds = swept("SMP_COMM_SWEEP_CALLS", 1200) / 3 / 200;
  for (const int size : {2, 3, 4})
    run_ranks(size, [&](Communicator& world) {
      std::vector<int> all;
      for (int rank = size - 1; rank >= 0; --rank) all.push_back(rank);
      const auto other = world.split(all);
      all.pop_back();  // all but rank 0
      const auto part = world.rank() > 0 ? world.split(all) : nullptr;
      std::thread thread([&] {
        for (uint32_t round = 0; round < rounds; ++round) {
          CHECK(random_calls(*other, 1000 + round, 100) == 0);
          if (part) CHECK(random_calls(*part, 2000 + round, 100) == 0);
        }
      });
      for (uint32_t round = 0; round < rounds; ++round) CHECK(random_calls(world, round, 200) == 0);
      thread.join();
    });
}

TEST_CASE("processes: random calls, several under way, for as long as asked for") {
  const auto seconds = swept("SMP_COMM_SOAK_S", 1);
  // As in a job: a machine may stand still for a minute in half an hour.
  ProcessOptions patient;
  patient.timeout = std::chrono::minutes(5);
  const RankProgram program = [&](Communicator& comm) {
    const auto resident_bytes = [] {
      int64_t pages = 0;
      std::ifstream("/proc/self/statm").ignore(32, ' ') >> pages;
      return pages * sysconf(_SC_PAGESIZE);
    };
    int64_t wrong = 0, warm = 0;
    uint32_t seed = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t is_over = 0; is_over == 0; ++seed) {
      wrong += random_calls(comm, seed, 200);
      const auto since = std::chrono::steady_clock::now() - begin;
      is_over = since > std::chrono::seconds(seconds);
      if (warm == 0 && since > std::chrono::seconds(seconds) / 3) warm = resident_bytes();
      comm.broadcast(&is_over, 1, DType::kI64, 0, "over")->wait();
    }
    constexpr int64_t kGrowthBytes = 1 << 20, kWarmSeconds = 20;
    const int64_t grown = resident_bytes() - warm;
    std::string said = std::to_string(wrong) + " wrong";
    if (seconds / 3 >= kWarmSeconds && grown >= kGrowthBytes)
      said += ", grown by " + std::to_string(grown) + " bytes";
    return said;
  };
  for (const Outcome& outcome : run_processes(4, program, patient))
    CHECK(outcome.said == "0 wrong");
}
