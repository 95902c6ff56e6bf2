#include <doctest/doctest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/layouts.h"
#include "comm/values.h"
#include "smp/comm/communicator.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::testing;

namespace {

template <class Get>
int64_t differences(int64_t count, const Values& values, Get get) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) wrong += values.get(i) != get(i);
  return wrong;
}

}  // namespace

TEST_CASE("send and recv keep the order of each pair, while no pair waits for another") {
  everywhere([&](Communicator& comm) {
    const int size = comm.size(), rank = comm.rank();
    constexpr int kMessages = 5;
    for (const DType dtype : kDTypes)
      for (const int64_t count : counts_for(dtype, size, kMailboxBytes / std::max(1, size - 1))) {
        std::vector<WorkPtr> works;
        std::vector<Values> sent, received;
        const auto value = [&](int from, int to, int m) {
          return [=](int64_t i) { return value_of(from + 2 * to + m, i); };
        };
        for (int peer = 0; peer < size; ++peer)
          for (int m = 0; m < kMessages; ++m) {
            sent.emplace_back(dtype, count);
            received.emplace_back(dtype, count);
            sent.back().fill(0, count, value(rank, peer, m));
          }
        // All sends of all ranks first: they must not need their receivers to be called before.
        for (int peer = 0; peer < size; ++peer)
          for (int m = 0; m < kMessages && peer != rank; ++m)
            works.push_back(
                comm.send(sent[size_t(peer * kMessages + m)].data(), count, dtype, peer, "m"));
        for (int peer = size - 1; peer >= 0; --peer)
          for (int m = 0; m < kMessages && peer != rank; ++m)
            works.push_back(
                comm.recv(received[size_t(peer * kMessages + m)].data(), count, dtype, peer, "m"));
        for (const WorkPtr& work : works) work->wait();
        for (int peer = 0; peer < size; ++peer)
          for (int m = 0; m < kMessages && peer != rank; ++m) {
            const auto expected = value(peer, rank, m);
            CHECK(received[size_t(peer * kMessages + m)].differences(
                      0, count, [&](int64_t i, double got) { return got == expected(i); }) == 0);
          }
      }
  });
}

TEST_CASE("calls keep their order while another thread runs the engine") {
  // Once a call that found the engine busy was overtaken by the next one, which found it idle.
  run_ranks(2, [](Communicator& comm) {
    constexpr int kMessages = 1000;
    const auto twin = comm.split({0, 1});
    std::thread other([&] {
      for (int i = 0; i < kMessages; ++i) twin->barrier("b")->wait();
    });
    std::vector<int32_t> out(kMessages), in(kMessages, -1);
    std::iota(out.begin(), out.end(), 0);
    std::vector<WorkPtr> works;
    for (size_t m = 0; m < kMessages; ++m) {
      works.push_back(comm.send(&out[m], 1, DType::kI32, 1 - comm.rank(), "m"));
      works.push_back(comm.recv(&in[m], 1, DType::kI32, 1 - comm.rank(), "m"));
    }
    for (const WorkPtr& work : works) work->wait();
    other.join();
    CHECK(in == out);
  });
}

TEST_CASE("barrier: nobody passes before everybody has come") {
  for (const int size : kSizes) {
    std::atomic<int> arrived{0};
    run_ranks(size, [&](Communicator& comm) {
      for (int round = 1; round <= 20; ++round) {
        arrived.fetch_add(1);
        comm.barrier("b")->wait();
        CHECK(arrived.load() >= round * size);
        comm.barrier("b")->wait();
      }
    });
  }
}

TEST_CASE("bf16 is summed in fp32 and rounded once, to nearest even") {
  // 256 + 1 + 1 is 258, a bf16; rounded after each addition it would stay 256. 256 + 1 alone is a
  // tie, which goes to the even neighbour 256.
  run_ranks(3, [](Communicator& comm) {
    std::vector<uint16_t> x(20000, bf16_bits(comm.rank() == 0 ? 256.0f : 1.0f));
    comm.all_reduce(x.data(), x.data(), int64_t(x.size()), DType::kBF16, ReduceOp::kSum, "x")
        ->wait();
    CHECK(std::all_of(x.begin(), x.end(), [](uint16_t b) { return bf16_value(b) == 258.0f; }));
  });
  run_ranks(2, [](Communicator& comm) {
    uint16_t x = bf16_bits(comm.rank() == 0 ? 256.0f : 1.0f);
    comm.all_reduce(&x, &x, 1, DType::kBF16, ReduceOp::kSum, "x")->wait();
    CHECK(bf16_value(x) == 256.0f);
  });
}

TEST_CASE("a NaN of one rank is a NaN for all") {
  for (const ReduceOp op : kReduceOps)
    run_ranks(3, [&](Communicator& comm) {
      std::vector<float> x(5, comm.rank() == 1 ? NAN : float(comm.rank()));
      comm.all_reduce(x.data(), x.data(), 5, DType::kF32, op, "x")->wait();
      CHECK(std::all_of(x.begin(), x.end(), [](float v) { return std::isnan(v); }));
    });
}

TEST_CASE("groups work side by side, nested, repeated and from several threads") {
  run_ranks(8, [](Communicator& world) {
    const int rank = world.rank();
    std::vector<int> row, column;
    for (int i = 0; i < 8; ++i) {
      if (i / 4 == rank / 4) row.push_back(i);
      if (i % 4 == rank % 4) column.push_back(i);
    }
    std::reverse(column.begin(), column.end());
    const auto rows = world.split(row), columns = world.split(column), twin = world.split(row);
    const auto alone = rows->split({rows->rank()});
    CHECK(rows->global_rank(rows->rank()) == rank);
    CHECK(columns->global_rank(columns->rank()) == rank);
    CHECK(columns->rank() == (rank < 4 ? 1 : 0));
    CHECK(alone->size() == 1);
    CHECK(alone->segment_bytes() == 0);
    auto sums = [](Communicator& comm, int64_t expected_sum, int rounds) {
      for (int i = 0; i < rounds; ++i) {
        std::vector<int64_t> x(5000, comm.global_rank(comm.rank()));
        comm.all_reduce(x.data(), x.data(), 5000, DType::kI64, ReduceOp::kSum, "x")->wait();
        CHECK(std::count(x.begin(), x.end(), expected_sum) == 5000);
      }
    };
    const int64_t of_row = rank < 4 ? 0 + 1 + 2 + 3 : 4 + 5 + 6 + 7;
    std::thread other([&] { sums(*columns, 2 * (rank % 4) + 4, 20); });
    sums(*rows, of_row, 20);
    sums(*twin, of_row, 5);
    sums(*alone, rank, 2);
    other.join();
    sums(world, 28, 3);
  });
}

TEST_CASE("groups that are gone leave their memory to later ones") {
  run_ranks(3, [](Communicator& world) {
    for (int i = 0; i < 500; ++i) {
      const auto group = world.split({2, 0, 1});
      int32_t x = world.rank();
      group->all_reduce(&x, &x, 1, DType::kI32, ReduceOp::kSum, "x")->wait();
      CHECK(x == 3);
    }
  });
}

TEST_CASE("work goes on while nobody waits for it") {
  constexpr int64_t kCount = 1 << 20;
  std::atomic<bool> ended{false};
  run_ranks(2, [&](Communicator& comm) {
    std::vector<float> a(kCount, float(comm.rank() + 1)), b(kCount, 1.0f);
    const WorkPtr first =
        comm.all_reduce(a.data(), a.data(), kCount, DType::kF32, ReduceOp::kSum, "a");
    const WorkPtr second =
        comm.all_reduce(b.data(), b.data(), kCount, DType::kF32, ReduceOp::kSum, "b");
    // Rank 1 does not look before rank 0 has all its results, half of which rank 1 sums.
    while (comm.rank() == 1 && !ended.load())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    first->wait();
    second->wait();
    if (comm.rank() == 0) ended.store(true);
    CHECK(std::count(a.begin(), a.end(), 3.0f) == kCount);
    CHECK(std::count(b.begin(), b.end(), 2.0f) == kCount);
  });
}

TEST_CASE("long calls that their caller leaves alone are run beside it, in their order") {
  constexpr int64_t kCount = 3 << 17;  // 1.5 MiB
  constexpr int kCalls = 6;
  for (const bool is_symmetric : {false, true})
    run_ranks(3, [&](Communicator& comm) {
      std::vector<std::shared_ptr<float[]>> buffers;
      std::vector<WorkPtr> works;
      const auto expect = [&](int i, float expected) {
        const float* const sums = buffers[size_t(i)].get();
        const int64_t begin = i % 2 == 0 ? 0 : comm.rank() * (kCount / 3);
        const int64_t end = i % 2 == 0 ? kCount : begin + kCount / 3;
        CHECK(std::count(sums + begin, sums + end, expected) == end - begin);
      };
      for (int i = 0; i < kCalls; ++i) {
        if (is_symmetric) {
          const auto memory = comm.allocate_symmetric(kCount * 4);
          buffers.emplace_back(memory, reinterpret_cast<float*>(memory.get()));
        } else {
          buffers.push_back(std::make_shared<float[]>(size_t(kCount)));
        }
        float* const buffer = buffers.back().get();
        std::fill(buffer, buffer + kCount, float(i + comm.rank()));
        works.push_back(
            i % 2 == 0 ? comm.all_reduce(buffer, buffer, kCount, DType::kF32, ReduceOp::kSum, "a")
                       : comm.reduce_scatter(buffer, buffer + comm.rank() * (kCount / 3), kCount,
                                             DType::kF32, ReduceOp::kSum, "r"));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (i == 3) {
          while (!works[0]->done()) std::this_thread::yield();
          expect(0, 3);
        }
      }
      for (int i = kCalls; i-- > 0;) works[size_t(i)]->wait();
      for (int i = 0; i < kCalls; ++i) expect(i, float(3 * i + 3));
      float one = 1;  // and what waits at once runs at once
      comm.all_reduce(&one, &one, 1, DType::kF32, ReduceOp::kSum, "one")->wait();
      CHECK(one == 3);
    });
}

namespace {

double cpu_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

}  // namespace

TEST_CASE("a caller that sleeps between long calls does not run them, though it once did") {
  constexpr int64_t kCount = 2 << 20;
  constexpr int kWarmUp = 12, kCalls = 30;
  constexpr double kMostOfAll = 0.1;
  double least = 1;
  for (int attempt = 0; attempt < 2 && least > kMostOfAll; ++attempt) {
    std::atomic<double> of_makers = 0;
    double of_all = 0;
    run_ranks(3, [&](Communicator& comm) {
      const auto memory = comm.allocate_symmetric(kCount * 4);
      WorkPtr last;
      double taken = 0, all = 0;
      for (int i = -kWarmUp; i < kCalls; ++i) {
        if (i == 0) all = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        const double before = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
        if (i == -kWarmUp / 2) {  // computes, and with more ranks than CPUs runs the next call
          while (cpu_seconds(CLOCK_THREAD_CPUTIME_ID) < before + 0.01) continue;
        }
        last =
            comm.all_reduce(memory.get(), memory.get(), kCount, DType::kF32, ReduceOp::kSum, "s");
        if (i >= 0) taken += cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - before;
      }
      while (!last->done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      of_makers += taken;
      if (comm.rank() == 0) of_all = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - all;
    });
    least = std::min(least, of_makers / of_all);
  }
  CHECK(least <= kMostOfAll);
}

TEST_CASE("what is only moved may lie at any address") {
  run_ranks(3, [](Communicator& comm) {
    constexpr int64_t kCount = 50001;
    std::vector<std::byte> in(8 * kCount + 1), out(3 * 8 * kCount + 1);
    std::vector<double> values(kCount);
    std::iota(values.begin(), values.end(), 100.0 * comm.rank());
    std::memcpy(in.data() + 1, values.data(), 8 * kCount);
    comm.all_gather(in.data() + 1, out.data() + 1, kCount, DType::kF64, "g")->wait();
    for (int rank = 0; rank < 3; ++rank) {
      std::iota(values.begin(), values.end(), 100.0 * rank);
      CHECK(std::memcmp(out.data() + 1 + rank * 8 * kCount, values.data(), 8 * kCount) == 0);
    }
    comm.broadcast(in.data() + 1, kCount, DType::kF64, 2, "b")->wait();
    CHECK(std::memcmp(in.data() + 1, values.data(), 8 * kCount) == 0);
  });
}

TEST_CASE("arguments that cannot be right are refused") {
  run_ranks(2, [](Communicator& comm) {
    float x[4] = {};
    CHECK_THROWS_WITH_AS(comm.all_reduce(x, x, -1, DType::kF32, ReduceOp::kSum, "x"),
                         "all_reduce 'x': expected a count of at least 0, not -1",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(
        comm.reduce_scatter(x, x, 3, DType::kF32, ReduceOp::kSum, "x"),
        "reduce_scatter 'x': the count 3 is not divisible by the 2 ranks of the group",
        std::invalid_argument);
    const char* const bytes = reinterpret_cast<const char*>(x);
    CHECK_THROWS_WITH_AS(
        comm.all_reduce(bytes + 1, x, 1, DType::kF32, ReduceOp::kSum, "x"),
        "all_reduce 'x': the address of the input is not a multiple of the 4 bytes of fp32",
        std::invalid_argument);
    CHECK_THROWS_WITH_AS(
        comm.reduce_scatter(x, const_cast<char*>(bytes) + 2, 2, DType::kF32, ReduceOp::kSum, "x"),
        "reduce_scatter 'x': the address of the output is not a multiple of the 4 bytes of fp32",
        std::invalid_argument);
    CHECK_THROWS_WITH_AS(
        comm.reduce(bytes + 1, nullptr, 1, DType::kBF16, ReduceOp::kSum, 1 - comm.rank(), "x"),
        "reduce 'x': the address of the input is not a multiple of the 2 bytes of bf16",
        std::invalid_argument);
    CHECK_THROWS_WITH_AS(comm.broadcast(x, 4, DType::kF32, 2, "x"),
                         "broadcast 'x': root 2 is not in the group of 2 ranks",
                         std::invalid_argument);
    if (comm.rank() == 0) {
      CHECK_THROWS_WITH_AS(comm.send(x, 4, DType::kF32, 0, "x"),
                           "send 'x': rank 0 is the caller itself", std::invalid_argument);
      CHECK_THROWS_WITH_AS(comm.recv(x, 4, DType::kF32, 7, "x"),
                           "recv 'x': rank 7 is not in the group of 2 ranks",
                           std::invalid_argument);
      CHECK_THROWS_WITH_AS(comm.split({1}), "split: the calling rank 0 is not one of the members",
                           std::invalid_argument);
      CHECK_THROWS_WITH_AS(comm.split({0, 1, 0}), "split: rank 0 is given twice",
                           std::invalid_argument);
      CHECK_THROWS_WITH_AS(comm.global_rank(2), "rank 2 is not in the group of 2 ranks",
                           std::invalid_argument);
    }
  });
}

TEST_CASE(
    "calls of several slots begin anywhere in the rings, after any number of slots of each rank") {
  everywhere([&](Communicator& comm) {
    const int size = comm.size(), rank = comm.rank();
    const int64_t few = 5, many = 3 * kSlotBytes + 1;  // uint8: one slot, four
    int64_t wrong = 0;
    const auto gather = [&](int64_t count) {
      Values in(DType::kU8, count), out(DType::kU8, count * size);
      for (int64_t i = 0; i < count; ++i) in.set(i, double((rank + i) % 100));
      comm.all_gather(in.data(), out.data(), count, DType::kU8, "x")->wait();
      wrong += differences(count * size, out,
                           [&](int64_t i) { return double((i / count + i % count) % 100); });
    };
    const auto sum = [&](int64_t count) {
      Values in(DType::kF32, count), out(DType::kF32, count), part(DType::kF32, count / size);
      for (int64_t i = 0; i < count; ++i) in.set(i, double(rank + i % 10));
      const auto expected = [&](int64_t i) {
        return double(size * (size - 1) / 2) + double(size) * double(i % 10);
      };
      comm.all_reduce(in.data(), out.data(), count, DType::kF32, ReduceOp::kSum, "x")->wait();
      wrong += differences(count, out, expected);
      comm.reduce_scatter(in.data(), part.data(), count, DType::kF32, ReduceOp::kSum, "x")->wait();
      wrong += differences(count / size, part,
                           [&](int64_t i) { return expected(count / size * rank + i); });
    };
    for (int root = 0; root < std::min(size, 3); ++root) {  // whose ring alone moves on by a slot
      Values given(DType::kU8, few);
      for (int64_t i = 0; i < few; ++i) given.set(i, rank == root ? double(root + i) : 0);
      comm.broadcast(given.data(), few, DType::kU8, root, "x")->wait();
      wrong += differences(few, given, [&](int64_t i) { return double(root + i); });
      gather(root % 2 == 0 ? many : few);
      sum(many / 4 / size * size);
      gather(few);
      sum(few * size);
    }
    CAPTURE(size);
    CHECK(wrong == 0);
  });
}
