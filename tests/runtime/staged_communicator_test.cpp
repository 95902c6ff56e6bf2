#include "smp/runtime/staged_communicator.h"

#include <ATen/core/ivalue.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "host_gpu.h"
#include "smp/comm/thread_group.h"

// Messages of a device's memory, whose copies come late (host_gpu.h).
using namespace smp;
using namespace smp::test;

namespace {

std::vector<int64_t> values_of(int rank, int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 100 * rank);
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
