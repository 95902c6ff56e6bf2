#include "smp/comm/device/staged_communicator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/stepped_gpu.h"
#include "late_memory.h"
#include "smp/comm/jobs/thread_group.h"

// Messages of a device's memory, whose copies come late (late_memory.h).
using namespace smp;
using namespace smp::comm;
using namespace smp::device;
using namespace smp::jobs;
using namespace smp::test;

namespace {

std::vector<int64_t> values_of(int rank, int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 100 * rank);
  return values;
}

std::vector<int> values_up_to(int count) {
  std::vector<int> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

}  // namespace

TEST_CASE("staged messages: every operation gives what it gives of host memory") {
  for (const int size : {1, 2, 3}) {
    CountedCopies counts;
    run_ranks(size, [&](Communicator& world) {
      LateMemory memory(counts);
      StagedCommunicator staged(world, memory);
      const int rank = staged.rank();
      const auto same = [&](const std::vector<int64_t>& ours, const std::vector<int64_t>& plain) {
        CHECK(ours == plain);
      };
      const std::vector<int64_t> own = values_of(rank, 6);
      std::vector<int64_t> out(6), plain(6);
      staged.all_reduce(own.data(), out.data(), 6, DType::kI64, ReduceOp::kSum, "a")->wait();
      world.all_reduce(own.data(), plain.data(), 6, DType::kI64, ReduceOp::kSum, "a")->wait();
      same(out, plain);
      out.assign(static_cast<size_t>(6 * size), 0);
      plain = out;
      staged.all_gather(own.data(), out.data(), 6, DType::kI64, "b")->wait();
      world.all_gather(own.data(), plain.data(), 6, DType::kI64, "b")->wait();
      same(out, plain);
      const std::vector<int64_t> wide = values_of(rank, 2 * size);
      out.assign(2, 0);
      plain = out;
      staged.reduce_scatter(wide.data(), out.data(), 2 * size, DType::kI64, ReduceOp::kSum, "c")
          ->wait();
      world.reduce_scatter(wide.data(), plain.data(), 2 * size, DType::kI64, ReduceOp::kSum, "c")
          ->wait();
      same(out, plain);
      out = own;
      plain = own;
      staged.broadcast(out.data(), 6, DType::kI64, size - 1, "d")->wait();
      world.broadcast(plain.data(), 6, DType::kI64, size - 1, "d")->wait();
      same(out, plain);
      staged.barrier("e")->wait();
      const int root = size - 1;
      out.assign(6, 0);
      plain = out;
      staged.reduce(own.data(), out.data(), 6, DType::kI64, ReduceOp::kSum, root, "f")->wait();
      world.reduce(own.data(), plain.data(), 6, DType::kI64, ReduceOp::kSum, root, "f")->wait();
      same(out, plain);
      out.assign(static_cast<size_t>(6 * size), 0);
      plain = out;
      staged.gather(own.data(), out.data(), 6, DType::kI64, root, "g")->wait();
      world.gather(own.data(), plain.data(), 6, DType::kI64, root, "g")->wait();
      same(out, plain);
      out.assign(2, 0);
      plain = out;
      staged.scatter(wide.data(), out.data(), 2, DType::kI64, root, "h")->wait();
      world.scatter(wide.data(), plain.data(), 2, DType::kI64, root, "h")->wait();
      same(out, plain);
      out.assign(static_cast<size_t>(2 * size), 0);
      plain = out;
      staged.all_to_all(wide.data(), out.data(), 2, DType::kI64, "i")->wait();
      world.all_to_all(wide.data(), plain.data(), 2, DType::kI64, "i")->wait();
      same(out, plain);
    });
    // Of a call with a root only the root's side, or only the others', is copied.
    CHECK(counts.to_host == 6 * size + 2);
    CHECK(counts.to_device == 6 * size + 1);
    CHECK(counts.pinned == 0);
  }
}

TEST_CASE("staged messages: long ones go in parts, in place and not, and count as one call") {
  constexpr int64_t kCount = 1200007;  // of 8 bytes: parts that are not equally long
  for (const int size : {1, 2, 3}) {
    CountedCopies counts;
    run_ranks(size, [&](Communicator& world) {
      LateMemory memory(counts);
      const std::unique_ptr<Communicator> group = world.split(values_up_to(size));
      const std::unique_ptr<Communicator> plain_group = world.split(values_up_to(size));
      StagedCommunicator staged(*group, memory);
      Communicator& plain = *plain_group;
      const int rank = staged.rank(), root = size - 1;
      for (const bool in_place : {false, true}) {
        const std::vector<int64_t> own = values_of(rank, kCount);
        std::vector<int64_t> in = own, out(in.size()), expected(in.size());
        const int64_t* const sum = in_place ? in.data() : out.data();
        staged
            .all_reduce(in.data(), const_cast<int64_t*>(sum), kCount, DType::kI64, ReduceOp::kSum,
                        "a")
            ->wait();
        plain.all_reduce(own.data(), expected.data(), kCount, DType::kI64, ReduceOp::kSum, "a")
            ->wait();
        CHECK(std::equal(expected.begin(), expected.end(), sum));

        std::vector<int64_t> all(in.size() * static_cast<size_t>(size)), whole = all;
        int64_t* const place = all.data() + rank * kCount;
        if (in_place) std::copy(own.begin(), own.end(), place);
        staged.all_gather(in_place ? place : own.data(), all.data(), kCount, DType::kI64, "b")
            ->wait();
        plain.all_gather(own.data(), whole.data(), kCount, DType::kI64, "b")->wait();
        CHECK(all == whole);

        std::vector<int64_t> part(in.size());
        int64_t* const mine = in_place ? all.data() + rank * kCount : part.data();
        staged.reduce_scatter(all.data(), mine, kCount * size, DType::kI64, ReduceOp::kMax, "c")
            ->wait();
        plain
            .reduce_scatter(whole.data(), expected.data(), kCount * size, DType::kI64,
                            ReduceOp::kMax, "c")
            ->wait();
        CHECK(std::equal(expected.begin(), expected.end(), mine));

        out = own;
        expected = own;
        const WorkPtr sent = staged.broadcast(out.data(), kCount, DType::kI64, root, "d");
        while (!sent->done()) continue;
        plain.broadcast(expected.data(), kCount, DType::kI64, root, "d")->wait();
        CHECK(out == expected);
      }
      const std::vector<TrafficCount> ours = staged.traffic(), theirs = plain.traffic();
      REQUIRE(ours.size() == theirs.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        CHECK(ours[i].label == theirs[i].label);
        CHECK(ours[i].calls == theirs[i].calls);
        CHECK(ours[i].wire_bytes == theirs[i].wire_bytes);
      }
    });
    CHECK(counts.to_host > 8 * size);
    CHECK(counts.pinned == 0);
  }
}

TEST_CASE("staged messages: a call of nothing is one like any other, before all others too") {
  CountedCopies counts;
  run_ranks(2, [&](Communicator& world) {
    LateMemory memory(counts);
    StagedCommunicator staged(world, memory);
    int64_t value = staged.rank();
    staged.all_reduce(&value, &value, 0, DType::kI64, ReduceOp::kSum, "none")->wait();
    CHECK(value == staged.rank());
    staged.all_reduce(&value, &value, 1, DType::kI64, ReduceOp::kSum, "one")->wait();
    CHECK(value == 1);
  });
}

TEST_CASE("staged messages: parts of calls of unlike lengths are no match, and both are named") {
  constexpr int64_t kPart = 1 << 20;  // elements of fp32: 4 MiB
  std::array<std::string, 2> said;
  run_ranks(2, [&](Communicator& world) {
    CountedCopies counts;
    LateMemory memory(counts);
    StagedCommunicator staged(world, memory);
    std::vector<float> values(4 * kPart, 1);
    try {
      const int64_t first = staged.rank() == 0 ? 4 * kPart : 3 * kPart;
      for (const int64_t count : {first, 4 * kPart - first})
        staged.all_reduce(values.data(), values.data(), count, DType::kF32, ReduceOp::kSum, "x")
            ->wait();
    } catch (const CommError& error) {
      said[static_cast<size_t>(staged.rank())] = error.what();
    }
  });
  for (const std::string& text : said)
    CHECK(text ==
          "rank 0: all_reduce #1 'x, 4194304 in 4 parts' of 1048576 fp32 does not match rank 1: "
          "all_reduce #1 'x, 3145728 in 3 parts' of 1048576 fp32");
}

TEST_CASE("staged messages: a reduce_scatter that cannot be divided is refused as host memory's") {
  run_ranks(3, [](Communicator& world) {
    CountedCopies counts;
    LateMemory memory(counts);
    StagedCommunicator staged(world, memory);
    std::vector<float> values(8), part(3);
    const auto text_of = [&](Communicator& comm) -> std::string {
      try {
        comm.reduce_scatter(values.data(), part.data(), 8, DType::kF32, ReduceOp::kSum, "x")
            ->wait();
      } catch (const std::invalid_argument& error) {
        return error.what();
      }
      return "nothing";
    };
    CHECK(text_of(staged) == text_of(world));
    CHECK(text_of(staged) != "nothing");
  });
}

// Each rank starts its messages of two groups in another order than it waits for them, and the
// groups' ranks wait for one another: it ends because waiting starts all that is due.
TEST_CASE(
    "staged messages: what one group waits for, another group's queued message does not hold") {
  CountedCopies counts;
  run_ranks(2, [&](Communicator& world) {
    LateMemory memory(counts);
    StagedCommunicator staged(world, memory);
    const std::unique_ptr<Communicator> other = staged.split({0, 1});
    const int rank = staged.rank(), peer = 1 - rank;
    for (int64_t round = 0; round < 20; ++round) {
      std::vector<int64_t> sent = {round, rank}, got(2), sum = {round};
      const WorkPtr sending = staged.send(sent.data(), 2, DType::kI64, peer, "x");
      const WorkPtr adding =
          other->all_reduce(sum.data(), sum.data(), 1, DType::kI64, ReduceOp::kSum, "y");
      const WorkPtr receiving = staged.recv(got.data(), 2, DType::kI64, peer, "x");
      if (rank == 0) {
        adding->wait();
        receiving->wait();
      } else {
        receiving->wait();
        while (!adding->done()) continue;
      }
      sending->wait();
      CHECK(got == std::vector<int64_t>{round, peer});
      CHECK(sum.front() == 2 * round);
    }
  });
}

TEST_CASE("staged messages: buffers are used again, and a peer's failure is told to who waits") {
  CountedCopies counts;
  int64_t most_pinned = 0;
  run_ranks(2, [&](Communicator& world) {
    LateMemory memory(counts);
    StagedCommunicator staged(world, memory);
    std::vector<int64_t> values(1000);
    for (int round = 0; round < 5; ++round) {
      staged.all_reduce(values.data(), values.data(), 1000, DType::kI64, ReduceOp::kSum, "z")
          ->wait();
    }
    if (world.rank() == 0) {
      most_pinned = counts.pinned;
      staged.abort("because");
      return;
    }
    const WorkPtr work =
        staged.all_reduce(values.data(), values.data(), 1000, DType::kI64, ReduceOp::kSum, "z");
    CHECK_THROWS_AS(work->wait(), CommError);
  });
  CHECK(most_pinned <= 2);
}

TEST_CASE("staged messages: a longer one has a longer buffer in place of one, not beside it") {
  CountedCopies counts;
  run_ranks(1, [&](Communicator& world) {
    LateMemory memory(counts);
    int64_t bytes_now = 0, most = 0, buffers = 0;
    const auto allocate = [&](int64_t bytes) {
      most = std::max(most, bytes_now += bytes);
      ++buffers;
      const auto owned = world.allocate_symmetric(bytes);
      return std::shared_ptr<std::byte[]>(
          owned.get(), [&bytes_now, owned, bytes](std::byte*) { bytes_now -= bytes; });
    };
    StagedCommunicator staged(world, memory, allocate);
    std::vector<int64_t> values(3000);
    const auto sum = [&](int64_t count) {
      return staged.all_reduce(values.data(), values.data(), count, DType::kI64, ReduceOp::kSum,
                               "x");
    };
    for (int64_t count = 1; count <= 1000; count += 111) sum(count)->wait();
    CHECK(counts.pinned.load() == 1);
    CHECK(most == 1000 * 8);
    for (const int64_t longer : {1000, 1500, 2000}) {
      const WorkPtr first = sum(longer), second = sum(longer / 2);
      first->wait();
      second->wait();
    }
    CHECK(counts.pinned.load() == 2);
    CHECK(most <= (2000 + 2000) * 8);
    sum(7)->wait();  // has a buffer of its own, so that it never takes one of a long message
    const int64_t before = buffers;
    CHECK(counts.pinned.load() == 3);
    for (int step = 0; step < 5; ++step) {
      const WorkPtr shortest = sum(7), first = sum(2000), second = sum(1000);
      first->wait();
      second->wait();
      shortest->wait();
      sum(7)->wait();
    }
    CHECK(buffers == before);
  });
  CHECK(counts.pinned == 0);
}

// Results must not wait for what the device was asked to compute after the call: a backward pass
// that is asked for at once would hold all of them back until its end.
TEST_CASE("staged messages: results come beside what is computed after the call") {
  run_ranks(2, [](Communicator& world) {
    SteppedGpu gpu;
    StagedCommunicator staged(world, gpu);
    int64_t value = 0, later = 0;
    gpu.compute([&] { value = 1; });
    const WorkPtr sum =
        staged.all_reduce(&value, &value, 1, DType::kI64, ReduceOp::kSum, "gradient");
    gpu.finish_kernels();
    gpu.compute([&] { later = value; });
    while (!sum->done()) gpu.finish_free_copies();
    CHECK(value == 2);
    CHECK(later == 0);  // that kernel has not run
  });
}

TEST_CASE("staged messages: what is received does not overtake what was computed before") {
  run_ranks(2, [](Communicator& world) {
    SteppedGpu gpu;
    StagedCommunicator staged(world, gpu);
    int64_t value = 7, read = 0;
    if (world.rank() == 0) {
      const WorkPtr sent = staged.send(&value, 1, DType::kI64, 1, "activation");
      while (!sent->done()) gpu.finish_copies();
    } else {
      gpu.compute([&] { read = value; });
      value = 3;
      staged.recv(&value, 1, DType::kI64, 0, "activation")->wait();
      CHECK(gpu.to_device == 1);
      CHECK(value == 7);
      CHECK(read == 3);
    }
  });
}
