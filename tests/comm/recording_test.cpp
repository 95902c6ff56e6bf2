#include "smp/comm/recording.h"

#include <doctest/doctest.h>

#include <memory>

using namespace smp;
using namespace smp::comm;
using namespace smp::mesh;

TEST_CASE("a recording communicator notes each call and moves nothing") {
  const auto recording = std::make_shared<Recording>();
  const auto world = make_recording_communicator(2, 4, recording);
  CHECK(world->rank() == 2);
  CHECK(world->size() == 4);
  CHECK(world->all_reduce(nullptr, nullptr, 100000, DType::kBF16, ReduceOp::kSum, "g")->done());
  const auto pair = world->split({3, 2});
  CHECK(pair->rank() == 1);
  CHECK(pair->global_rank(0) == 3);
  pair->send(nullptr, 10, DType::kF32, 0, "m")->wait();
  pair->recv(nullptr, 10, DType::kF32, 0, "m")->wait();

  const auto calls = recording->calls();
  REQUIRE(calls.size() == 3);
  CHECK(calls[0].op == CollectiveOp::kAllReduce);
  CHECK(calls[0].label == "g");
  CHECK(calls[0].group == std::vector<int>{0, 1, 2, 3});
  CHECK(calls[0].count == 100000);
  CHECK(calls[0].wire_bytes == wire_bytes(CollectiveOp::kAllReduce, 4, 2, 100000, 2));
  CHECK(calls[1].group == std::vector<int>{3, 2});
  CHECK(calls[1].op == CollectiveOp::kSend);
  CHECK(calls[1].peer == 0);
  CHECK(calls[1].wire_bytes == 40);
  CHECK(calls[2].wire_bytes == 0);
  CHECK(world->traffic().size() == 1);
  CHECK(pair->segment_bytes() == segment_bytes(2));
  pair->scatter(nullptr, nullptr, 5, DType::kF64, 1, "s")->wait();
  CHECK(recording->calls().back().op == CollectiveOp::kScatter);
  CHECK(recording->calls().back().peer == 1);
  CHECK(recording->calls().back().wire_bytes == 40);
}

TEST_CASE("a recording communicator refuses what the real ones refuse, and can be aborted") {
  const auto world = make_recording_communicator(0, 3, std::make_shared<Recording>());
  CHECK_THROWS_WITH_AS(
      world->reduce_scatter(nullptr, nullptr, 4, DType::kF32, ReduceOp::kSum, "x"),
      "reduce_scatter 'x': the count 4 is not divisible by the 3 ranks of the group",
      std::invalid_argument);
  CHECK_THROWS_AS(world->split({1, 2}), std::invalid_argument);
  CHECK_THROWS_AS(make_recording_communicator(3, 3, std::make_shared<Recording>()),
                  std::invalid_argument);
  CHECK_THROWS_WITH_AS(world->gather(nullptr, nullptr, 4, DType::kF32, 3, "x"),
                       "gather 'x': root 3 is not in the group of 3 ranks", std::invalid_argument);
  world->abort("enough");
  CHECK_THROWS_WITH_AS(world->barrier("b")->wait(), "aborted: enough", CommError);
}
