#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "comm/processes.h"
#include "comm/symmetric_buffer.h"
#include "comm/values.h"
#include "smp/comm/call_log.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::testing;

namespace {

// Sums of these depend on their order.
float value(int rank, int64_t i) {
  return std::sin(float(i) * 1.7f + float(rank)) * std::pow(10.0f, float(rank));
}

float sum_at(int size, int64_t i) {
  float sum = value(0, i);
  for (int rank = 1; rank < size; ++rank) sum += value(rank, i);
  return sum;
}

// Which ranks have symmetric buffers.
enum class Who { kAll, kNone, kEven, kInputsOfAll, kInputsOfAllOutputsOfEven };

// How many elements all three collectives get wrong, of `count` elements a rank.
int64_t wrong_elements(Communicator& comm, int64_t count, Who who, bool in_place) {
  const int size = comm.size(), rank = comm.rank();
  const bool is_of_even = who == Who::kEven || who == Who::kInputsOfAllOutputsOfEven;
  const bool symmetric = who == Who::kAll || (is_of_even && rank % 2 == 0);
  const bool symmetric_in =
      symmetric || who == Who::kInputsOfAll || who == Who::kInputsOfAllOutputsOfEven;
  int64_t wrong = 0;

  Buffer x(comm, count, symmetric_in), y(comm, count, symmetric);
  for (int64_t i = 0; i < count; ++i) x[i] = value(rank, i);
  Buffer& sum = in_place ? x : y;
  comm.all_reduce(x.data(), sum.data(), count, DType::kF32, ReduceOp::kSum, "r")->wait();
  for (int64_t i = 0; i < count; ++i) wrong += sum[i] != sum_at(size, i);

  Buffer part(comm, count, symmetric_in), whole(comm, count * size, symmetric);
  float* mine = in_place ? whole.data() + count * rank : part.data();
  for (int64_t i = 0; i < count; ++i) mine[i] = value(rank, i);
  comm.all_gather(mine, whole.data(), count, DType::kF32, "g")->wait();
  for (int64_t i = 0; i < count * size; ++i) wrong += whole[i] != value(int(i / count), i % count);

  for (int64_t i = 0; i < count * size; ++i) whole[i] = value(rank, i);
  mine = in_place ? whole.data() + count * rank : part.data();
  comm.reduce_scatter(whole.data(), mine, count * size, DType::kF32, ReduceOp::kSum, "s")->wait();
  for (int64_t i = 0; i < count; ++i) wrong += mine[i] != sum_at(size, count * rank + i);
  return wrong;
}

}  // namespace

TEST_CASE("symmetric memory changes no bit, whoever has it") {
  const auto program = [](Communicator& comm) {
    for (const int64_t count : {1, 4099, 100003})
      for (const Who who :
           {Who::kAll, Who::kNone, Who::kEven, Who::kInputsOfAll, Who::kInputsOfAllOutputsOfEven})
        for (const bool in_place : {false, true}) {
          CAPTURE(comm.size());
          CAPTURE(count);
          CHECK(wrong_elements(comm, count, who, in_place) == 0);
        }
  };
  for (const int size : kSizes) run_ranks(size, program);
  // Private memory goes through rings where ranks share CPUs, else through slots.
  for (const int cpus : {2, 4}) run_ranks(4, program, {.cpus = cpus});
}

TEST_CASE("processes: symmetric memory is one memory for all, in groups too") {
  const auto outcomes = run_processes(4, [](Communicator& comm) {
    const auto pair = comm.split(comm.rank() < 2 ? std::vector<int>{1, 0} : std::vector<int>{2, 3});
    int64_t wrong = 0;
    for (int round = 0; round < 3; ++round) {
      wrong += wrong_elements(comm, 300007, Who::kAll, round == 1);
      wrong += wrong_elements(*pair, 300007, Who::kAll, round == 1);
    }
    return std::to_string(wrong) + " wrong";
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.said == "0 wrong");
}

TEST_CASE("several direct calls are under way at once, in two groups") {
  constexpr int64_t kCount = 50000;
  run_ranks(3, [&](Communicator& world) {
    const auto twin = world.split({0, 1, 2});
    auto sums = [&](Communicator& comm) {
      std::vector<Buffer> buffers;
      std::vector<WorkPtr> works;
      for (int k = 0; k < 6; ++k) {
        buffers.emplace_back(comm, kCount, true);
        for (int64_t i = 0; i < kCount; ++i) buffers.back()[i] = value(comm.rank(), i + k);
        works.push_back(comm.all_reduce(buffers.back().data(), buffers.back().data(), kCount,
                                        DType::kF32, ReduceOp::kSum, "x"));
      }
      int64_t wrong = 0;
      for (int k = 0; k < 6; ++k) {
        works[size_t(k)]->wait();
        for (int64_t i = 0; i < kCount; ++i) wrong += buffers[size_t(k)][i] != sum_at(3, i + k);
      }
      return wrong;
    };
    std::thread other([&] { CHECK(sums(*twin) == 0); });
    CHECK(sums(world) == 0);
    other.join();
  });
}

TEST_CASE(
    "a gather larger than the cache goes chunk by chunk, between calls of one slot and several") {
  run_ranks(3, [&](Communicator& comm) {
    int64_t wrong = 0;
    for (const int64_t count : {800001, 5000, 720000, 700001})  // from 700,000 on larger
      for (const Who who : {Who::kAll, Who::kInputsOfAll, Who::kNone})
        for (const bool in_place : {false, true}) {
          Buffer part(comm, count, who != Who::kNone), whole(comm, 3 * count, who == Who::kAll);
          float* mine = in_place ? whole.data() + count * comm.rank() : part.data();
          const auto at = [](int64_t rank, int64_t i) { return float(rank * 1000 + i % 997); };
          for (int64_t i = 0; i < count; ++i) mine[i] = at(comm.rank(), i);
          comm.all_gather(mine, whole.data(), count, DType::kF32, "g")->wait();
          for (int64_t i = 0; i < 3 * count; ++i) wrong += whole[i] != at(i / count, i % count);
        }
    CHECK(wrong == 0);
    CHECK(comm.traffic().at(0).wire_bytes == 6 * wire_bytes(CollectiveOp::kAllGather, 3,
                                                            comm.rank(),
                                                            800001 + 5000 + 720000 + 700001, 4));
  });
}

TEST_CASE("direct collectives move the bytes that smp::wire_bytes predicts") {
  for (const int size : {2, 3, 5})
    run_ranks(size, [&](Communicator& comm) {
      constexpr int64_t kCount = 100003;
      wrong_elements(comm, kCount, Who::kAll, false);
      const auto traffic = comm.traffic();
      REQUIRE(traffic.size() == 3);
      auto wire = [&](CollectiveOp op, int64_t count) {
        return wire_bytes(op, size, comm.rank(), count, 4);
      };
      CHECK(traffic[0].wire_bytes == wire(CollectiveOp::kAllGather, kCount));
      CHECK(traffic[1].wire_bytes == wire(CollectiveOp::kAllReduce, kCount));
      CHECK(traffic[2].wire_bytes == wire(CollectiveOp::kReduceScatter, kCount * size));
    });
}

TEST_CASE("symmetric memory is zeroed, its own, used again, and outlives the communicator") {
  std::shared_ptr<std::byte[]> kept;
  run_ranks(2, [&](Communicator& comm) {
    const auto a = comm.allocate_symmetric(5000), b = comm.allocate_symmetric(1);
    memset(a.get(), 1, 5000);
    CHECK(b[0] == std::byte(0));
    const std::byte* place = nullptr;
    for (int i = 0; i < 3; ++i) {
      const auto c = comm.allocate_symmetric(100000);
      if (place == nullptr) place = c.get();
      CHECK(c.get() == place);
      CHECK(c[99999] == std::byte(0));
      c[99999] = std::byte(7);
    }
    CHECK(comm.allocate_symmetric(0) == nullptr);
    std::string said;
    try {
      comm.allocate_symmetric(int64_t(1) << 60);
    } catch (const std::bad_alloc& error) {
      said = error.what();
    }
    CHECK(said.starts_with(
        "no addresses for 1152921504606846976 more bytes of symmetric memory: the rank has "));
    if (comm.rank() == 1) kept = a;
  });
  CHECK(kept[4999] == std::byte(1));
}

TEST_CASE("direct calls that do not match are told from each other") {
  std::string errors[2];
  run_ranks(2, [&](Communicator& comm) {
    Buffer x(comm, 20000, true);
    const int64_t count = comm.rank() == 0 ? 20000 : 10000;
    try {
      comm.all_reduce(x.data(), x.data(), count, DType::kF32, ReduceOp::kSum, "x")->wait();
    } catch (const CommError& e) {
      errors[comm.rank()] = text_of(e);
    }
  });
  for (const std::string& error : errors)
    CHECK(error ==
          "mismatch 1: rank 0: all_reduce #1 'x' of 20000 fp32 does not match rank 1: all_reduce "
          "#1 'x' of 10000 fp32");
}

TEST_CASE("processes: death while others read a rank's memory") {
  for (int trial = 0; trial < 6; ++trial) {
    const auto outcomes = run_processes(3, [&](Communicator& comm) {
      std::thread killer;
      Buffer x(comm, 300000, true), y(comm, 900000, true);
      comm.barrier("start")->wait();
      if (comm.rank() == trial % 3)
        killer = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(500 + trial * 3700));
          raise(SIGKILL);
        });
      for (;;) {
        comm.all_reduce(x.data(), x.data(), 300000, DType::kF32, ReduceOp::kSum, "x")->wait();
        comm.all_gather(x.data(), y.data(), 300000, DType::kF32, "y")->wait();
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

TEST_CASE("a rank that leaves while its memory is read is named") {
  for (const bool is_written : {false, true}) {
    std::string error;
    std::atomic<bool> has_gone{false};  // and says so; to others a barrier ends a moment before
    run_ranks(2, [&](Communicator& world) {
      auto pair = world.split({0, 1});
      Buffer x(world, 20000, true), all(world, 40000, is_written);
      if (world.rank() == 1) {
        const WorkPtr dropped = pair->all_gather(x.data(), all.data(), 20000, DType::kF32, "x");
        pair.reset();
        world.barrier("gone")->wait();
        has_gone.store(true);
      } else {
        world.barrier("gone")->wait();
        while (!has_gone.load()) std::this_thread::yield();
        try {
          pair->all_gather(x.data(), all.data(), 20000, DType::kF32, "x")->wait();
        } catch (const CommError& e) {
          error = text_of(e);
        }
      }
    });
    CAPTURE(is_written);
    CHECK(error == std::string("peer_lost 1: rank 0: all_gather #1 'x' of 20000 fp32: rank 1 has "
                               "left the group without completing the call") +
                       (is_written ? " (its last call: #1 barrier 'gone')" : ""));
  }
}

// In place: what was half made must not be made again.
TEST_CASE("a rank that leaves a call half made is named by all who do not have the result") {
  constexpr int64_t kCount = 36 << 20;  // its maker goes on in the middle of a piece
  constexpr int kRanks = 4;
  int named = 0;
  for (int trial = 0; trial < 8 || (named == 0 && trial < 200); ++trial) {
    std::array<std::string, kRanks> ends;
    std::atomic<int> called{0}, ended{0};
    run_ranks(kRanks, [&](Communicator& world) {
      auto group = world.split({0, 1, 2, 3});
      Buffer x(world, kCount, true);
      std::fill(x.data(), x.data() + kCount, 1.0f);
      const auto sum = [&] {
        return group->all_reduce(x.data(), x.data(), kCount, DType::kF32, ReduceOp::kSum, "x");
      };
      sum()->wait();  // all memory is mapped
      std::string& end = ends[size_t(world.rank())];
      const auto start = std::chrono::steady_clock::now();
      if (world.rank() == 1) {
        while (called.load() < kRanks - 1) std::this_thread::yield();
        const WorkPtr dropped = sum();  // moves what it may at once
        std::this_thread::sleep_for(std::chrono::microseconds(60 * (trial % 8)));
        group.reset();
        end = "left";
      } else {
        try {
          const WorkPtr work = sum();
          called.fetch_add(1);
          work->wait();
          end = std::all_of(x.data(), x.data() + kCount, [](float v) { return v == 16; }) ? "done"
                                                                                          : "wrong";
        } catch (const CommError& e) {
          end = text_of(e).substr(0, 12);
        }
        if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) end += ", late";
      }
      ended.fetch_add(1);  // memory that others read stays until all have
      while (ended.load() < kRanks) std::this_thread::yield();
    });
    for (const std::string& end : ends) {
      CAPTURE(trial);
      CAPTURE(end);
      const bool is_named = end == "peer_lost 1:";
      CHECK((end == "left" || end == "done" || is_named));
      named += is_named;
    }
  }
  CHECK(named > 0);
}

TEST_CASE("a rank that fails frees its memory only when its peers fail too") {
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<std::string> ends(3);
    const auto program = [&](Communicator& comm) {
      std::string& end = ends[size_t(comm.rank())];
      int64_t good = 0;
      try {
        for (int call = 0; call < 100000; ++call) {
          Buffer x(comm, 60000, true), all(comm, 60000, trial % 6 == 3);
          for (int64_t i = 0; i < 60000; ++i) x[i] = 1;
          WorkPtr work;
          switch (trial % 3) {
            case 0: work = comm.all_gather(x.data(), all.data(), 20000, DType::kF32, "x"); break;
            case 1:
              work = comm.reduce_scatter(x.data(), x.data() + 20000 * comm.rank(), 60000,
                                         DType::kF32, ReduceOp::kMax, "x");
              break;
            default:
              work = comm.all_reduce(x.data(), x.data(), 60000, DType::kF32, ReduceOp::kMax, "x");
          }
          if (comm.rank() == 2 && call == 5 + trial) throw std::logic_error("the first cause");
          work->wait();
          Buffer& got = trial % 3 == 0 ? all : x;
          for (int64_t i = 0; i < 60000; ++i) good += got[i] == 1;
          if (good != 60000 * (call + 1)) end = "took what was not there; ";
        }
      } catch (const CommError& e) {
        end += text_of(e).substr(0, 10);
      }
      // Where the memory of the call was.
      Buffer again(comm, 60000, true), behind(comm, 60000, true);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (int64_t i = 0; i < 60000; ++i)
        if (again[i] != 0 || behind[i] != 0) end = "written after the call";
    };
    CHECK_THROWS_WITH_AS(run_ranks(3, program), "the first cause", std::logic_error);
    CHECK(ends[0] == "aborted 2:");
    CHECK(ends[1] == "aborted 2:");
  }
}

TEST_CASE("parts are made without a rank that has called and computes") {
  constexpr int64_t kCount = 8 * 300000;  // of several pieces
  for (const CollectiveOp op :
       {CollectiveOp::kAllReduce, CollectiveOp::kReduceScatter, CollectiveOp::kAllGather}) {
    std::atomic<int> others{0};
    run_ranks(8, [&](Communicator& comm) {
      Buffer x(comm, kCount, true);
      for (int64_t i = 0; i < kCount; ++i) x[i] = value(comm.rank(), i);
      const bool for_all = op != CollectiveOp::kReduceScatter;
      float* const own = x.data() + kCount / 8 * comm.rank();
      const int64_t begin = for_all ? 0 : own - x.data();
      const int64_t end = for_all ? kCount : begin + kCount / 8;
      WorkPtr work;
      if (op == CollectiveOp::kAllReduce)
        work = comm.all_reduce(x.data(), x.data(), kCount, DType::kF32, ReduceOp::kSum, "s");
      else if (op == CollectiveOp::kReduceScatter)
        work = comm.reduce_scatter(x.data(), own, kCount, DType::kF32, ReduceOp::kSum, "s");
      else
        work = comm.all_gather(own, x.data(), kCount / 8, DType::kF32, "s");
      if (comm.rank() == 3) {
        while (others.load() < 7) std::this_thread::yield();
      } else {
        work->wait();
        others.fetch_add(1);
      }
      work->wait();
      int64_t wrong = 0;
      const bool is_sum = op != CollectiveOp::kAllGather;
      for (int64_t i = begin; i < end; ++i)
        wrong += x[i] != (is_sum ? sum_at(8, i) : value(int(i / (kCount / 8)), i));
      CHECK(wrong == 0);
    });
  }
}

TEST_CASE("many reductions are called ahead of their peers, between other calls") {
  constexpr int64_t kCount = 30000;
  run_ranks(3, [&](Communicator& comm) {
    for (int round = 0; round < 5; ++round) {
      std::vector<Buffer> buffers;
      std::vector<WorkPtr> works;
      for (int k = 0; k < 9; ++k) {
        Buffer& x = buffers.emplace_back(comm, kCount, true);
        for (int64_t i = 0; i < kCount; ++i) x[i] = value(comm.rank(), i + k);
        works.push_back(comm.reduce_scatter(x.data(), x.data() + kCount / 3 * comm.rank(), kCount,
                                            DType::kF32, ReduceOp::kSum, "s"));
        if (k % 4 == round % 4) works.push_back(comm.barrier("b"));
        if (comm.rank() == round % 3) std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
      for (const WorkPtr& work : works) work->wait();
      int64_t wrong = 0;
      for (int k = 0; k < 9; ++k)
        for (int64_t i = kCount / 3 * comm.rank(); i < kCount / 3 * (comm.rank() + 1); ++i)
          wrong += buffers[size_t(k)][i] != sum_at(3, i + k);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("a call that nobody waits for completes, also after many that were waited for at once") {
  const auto ended = [](const Communicator& comm) {
    return comm.call_log()->calls().back().state == LoggedCall::State::kDone;
  };
  run_ranks(2, [&](Communicator& comm) {
    const auto begin = std::chrono::steady_clock::now();
    Buffer in(comm, 65536, true), out(comm, 65536, true);
    float goes_on = 1;
    while (goes_on > 0) {  // until the engine's thread has seen that it is not needed
      comm.all_reduce(in.data(), out.data(), 65536, DType::kF32, ReduceOp::kSum, "habit")->wait();
      goes_on = std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(250) ? 1 : 0;
      comm.all_reduce(&goes_on, &goes_on, 1, DType::kF32, ReduceOp::kMin, "until")->wait();
    }
    for (const int64_t count : {1, 65536}) {
      in[0] = float(comm.rank() + 1);
      const WorkPtr work =
          comm.all_reduce(in.data(), out.data(), count, DType::kF32, ReduceOp::kSum, "alone");
      while (!ended(comm)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      CHECK(out[0] == 3);
    }
  });
}
