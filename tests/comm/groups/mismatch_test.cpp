#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/calls_apart.h"
#include "comm/differences.h"
#include "comm/processes.h"
#include "comm/times.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::testing;
using std::chrono::milliseconds;

namespace {

void check_mismatch(const Step& zero, const Step& one, const std::string& text) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = errors_of({zero, one}, kNever);
  CHECK(errors[0] == "mismatch 1: " + text);
  CHECK(errors[1] == "mismatch 1: " + text);
  CHECK(std::chrono::steady_clock::now() - start < kSoon);
}

}  // namespace

TEST_CASE("calls that do not match end at once on both ranks, which are both named") {
  const DType f32 = DType::kF32;
  check_mismatch(sum_of(4096, f32, ReduceOp::kSum, "data.gradients"), gather_of(10, f32, "w"),
                 "rank 0: all_reduce #1 'data.gradients' of 4096 fp32 does not match "
                 "rank 1: all_gather #1 'w' of 10 fp32");
  check_mismatch(sum_of(8, f32, ReduceOp::kSum, "x"), sum_of(8, DType::kF64, ReduceOp::kSum, "x"),
                 "rank 0: all_reduce #1 'x' of 8 fp32 does not match "
                 "rank 1: all_reduce #1 'x' of 8 fp64");
  check_mismatch(sum_of(8, f32, ReduceOp::kSum, "x"), sum_of(8, f32, ReduceOp::kMax, "x"),
                 "rank 0: all_reduce #1 'x' of 8 fp32 does not match "
                 "rank 1: all_reduce #1 'x' of 8 fp32 (max)");
  check_mismatch(sum_of(8, f32, ReduceOp::kSum, "x"), sum_of(100000, f32, ReduceOp::kSum, "x"),
                 "rank 0: all_reduce #1 'x' of 8 fp32 does not match "
                 "rank 1: all_reduce #1 'x' of 100000 fp32");
  check_mismatch(
      gather_of(1 << 20, f32, "x"), [](Communicator& c) { c.barrier("b")->wait(); },
      "rank 0: all_gather #1 'x' of 1048576 fp32 does not match "
      "rank 1: barrier #1 'b'");
  check_mismatch(broadcast_of(1 << 20, 0, "x"), broadcast_of(1 << 20, 1, "x"),
                 "rank 0: broadcast #1 'x' of 1048576 fp32 from rank 0 does not match "
                 "rank 1: broadcast #1 'x' of 1048576 fp32 from rank 1");
  check_mismatch(broadcast_of(0, 0, "x"), sum_of(0, f32, ReduceOp::kSum, "x"),
                 "rank 0: broadcast #1 'x' of 0 fp32 from rank 0 does not match "
                 "rank 1: all_reduce #1 'x' of 0 fp32");
  std::vector<float> x(8);
  auto to_root = [&](int root) -> Step {
    return [&, root](Communicator& c) {
      c.gather(x.data(), c.rank() == root ? x.data() : nullptr, 4, f32, root, "x")->wait();
    };
  };
  check_mismatch(to_root(0), to_root(1),
                 "rank 0: gather #1 'x' of 4 fp32 to rank 0 does not match "
                 "rank 1: gather #1 'x' of 4 fp32 to rank 1");
  check_mismatch([&](Communicator& c) { c.scatter(x.data(), x.data(), 4, f32, 0, "x")->wait(); },
                 [&](Communicator& c) {
                   std::vector<float> own(4);
                   c.reduce(own.data(), nullptr, 4, f32, ReduceOp::kProduct, 0, "x")->wait();
                 },
                 "rank 0: scatter #1 'x' of 4 fp32 from rank 0 does not match "
                 "rank 1: reduce #1 'x' of 4 fp32 (product) to rank 0");
  check_mismatch(send_of(4, f32, 1, "m"), recv_of(5, f32, 0, "m"),
                 "rank 0: send #1 'm' of 4 fp32 to rank 1 does not match "
                 "rank 1: recv #1 'm' of 5 fp32 from rank 0");
  check_mismatch(send_of(1 << 20, f32, 1, "m"), recv_of(1 << 20, DType::kI32, 0, "m"),
                 "rank 0: send #1 'm' of 1048576 fp32 to rank 1 does not match "
                 "rank 1: recv #1 'm' of 1048576 int32 from rank 0");
}

TEST_CASE(
    "a call of two slots at once is told from one of a slot, wherever in the ring it begins") {
  constexpr int kRanks = 4;
  const Step gather = gather_of(100, DType::kF32, "x");
  for (int before = 0; before < 8; ++before) {
    CAPTURE(before);
    const auto after = [=](const Step& step) -> Step {
      return [=](Communicator& comm) {
        for (int i = 0; i < before; ++i) gather(comm);
        step(comm);
      };
    };
    const Step scatter = [](Communicator& comm) {
      std::vector<float> in(1 << 20), out(in.size() / kRanks);
      comm.reduce_scatter(in.data(), out.data(), int64_t(in.size()), DType::kF32, ReduceOp::kSum,
                          "x")
          ->wait();
    };
    std::vector<Step> calls(kRanks, after(scatter));
    calls.back() = after([&](Communicator& comm) {  // the peers' slots are there already
      std::this_thread::sleep_for(milliseconds(20));
      gather(comm);
    });
    const auto start = std::chrono::steady_clock::now();
    for (const std::string& error : errors_of(calls, kNever)) {
      CHECK(error.rfind("mismatch 3: rank ", 0) == 0);
      CHECK(error.find(fmt::format("all_gather #{} 'x' of 100 fp32", before + 1)) !=
            std::string::npos);
    }
    CHECK(std::chrono::steady_clock::now() - start < kSoon);
  }
}

TEST_CASE("calls in another order are told from each other by their labels") {
  auto two = [](const char* first, const char* second) -> Step {
    return [=](Communicator& comm) {
      std::vector<float> a(10), b(10);
      const WorkPtr x = comm.all_reduce(a.data(), a.data(), 10, DType::kF32, ReduceOp::kSum, first);
      const WorkPtr y =
          comm.all_reduce(b.data(), b.data(), 10, DType::kF32, ReduceOp::kSum, second);
      x->wait();
      y->wait();
    };
  };
  check_mismatch(two("a", "b"), two("b", "a"),
                 "rank 0: all_reduce #1 'a' of 10 fp32 does not match "
                 "rank 1: all_reduce #1 'b' of 10 fp32");
}

TEST_CASE("whatever differs in a host, in either memory: all hear of both calls within a second") {
  constexpr int kSize = 4;
  for (const bool is_symmetric : {false, true})
    for (const int odd : {0, kSize - 1})
      for (const Difference& difference : all_differences(kSize - 1)) {
        const auto step_of = [&](int rank) -> Step {
          return [&, rank](Communicator& comm) {
            run_calls(comm, rank == odd ? difference.odd : difference.usual, is_symmetric);
          };
        };
        std::vector<Step> steps;
        for (int rank = 0; rank < kSize; ++rank) steps.push_back(step_of(rank));
        const bool is_soon = is_once_within(kHeard, [&] {
          const auto begin = std::chrono::steady_clock::now();
          for (const std::string& error : errors_of(steps, kNever))
            CHECK(wrong_with(error, difference, kSize) == "");
          return milliseconds_since(begin);
        });
        CAPTURE(is_symmetric);
        CAPTURE(odd);
        CAPTURE(text_of(difference));
        CHECK(is_soon);
      }
}

TEST_CASE("among several ranks the odd one out is blamed") {
  const auto usual = sum_of(8, DType::kF32, ReduceOp::kSum, "x");
  auto after = [](const Step& last) -> Step {
    return [=](Communicator& comm) {
      comm.barrier("b")->wait();
      last(comm);
    };
  };
  const auto errors = errors_of({after(sum_of(9, DType::kF32, ReduceOp::kSum, "x")), after(usual),
                                 after(usual), after(usual)},
                                std::chrono::seconds(30));
  for (const std::string& error : errors) {
    CHECK(error.rfind("mismatch 0: rank 0: all_reduce #2 'x' of 9 fp32 does not match rank ", 0) ==
          0);
    CHECK(error.find(": all_reduce #2 'x' of 8 fp32") != std::string::npos);
  }
}

TEST_CASE("processes: a mismatch ends both ranks with the same text") {
  const auto outcomes = run_processes(2, [](Communicator& comm) {
    std::vector<float> x(4096);
    comm.all_reduce(x.data(), x.data(), comm.rank() == 0 ? 4096 : 1024, DType::kF32, ReduceOp::kSum,
                    "data.gradients")
        ->wait();
    return std::string("went on");
  });
  for (const Outcome& outcome : outcomes)
    CHECK(outcome.said ==
          "mismatch 1: rank 0: all_reduce #1 'data.gradients' of 4096 fp32 does not match rank 1: "
          "all_reduce #1 'data.gradients' of 1024 fp32");
}
