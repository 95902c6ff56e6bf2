#include <doctest/doctest.h>

#include <deque>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "comm/values.h"
#include "segment/layout.h"
#include "smp/comm/communicator.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::testing;

TEST_CASE("the bytes that each operation moves are those that smp::wire_bytes predicts") {
  for (const int size : kSizes)
    run_ranks(size, [&](Communicator& comm) {
      int64_t calls = 0;
      int64_t all_reduce = 0, all_gather = 0, reduce_scatter = 0, broadcast = 0, sent = 0;
      int64_t reduce = 0, gather = 0, scatter = 0, all_to_all = 0;
      const int rank = comm.rank();
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64})
        for (const int64_t count : {0, 1, 3, 4, 17, 4096, 4097, 8193, 100003}) {
          const int64_t element = bytes_of(dtype);
          ++calls;
          Values x(dtype, count * size), y(dtype, count * size);
          comm.all_reduce(x.data(), y.data(), count, dtype, ReduceOp::kSum, "a")->wait();
          all_reduce += wire_bytes(CollectiveOp::kAllReduce, size, rank, count, element);
          comm.all_gather(x.data(), y.data(), count, dtype, "a")->wait();
          all_gather += wire_bytes(CollectiveOp::kAllGather, size, rank, count, element);
          comm.reduce_scatter(x.data(), y.data(), count * size, dtype, ReduceOp::kSum, "a")->wait();
          reduce_scatter +=
              wire_bytes(CollectiveOp::kReduceScatter, size, rank, count * size, element);
          comm.broadcast(x.data(), count, dtype, size - 1, "a")->wait();
          broadcast += wire_bytes(CollectiveOp::kBroadcast, size, rank, count, element, size - 1);
          comm.reduce(x.data(), y.data(), count, dtype, ReduceOp::kSum, size - 1, "a")->wait();
          reduce += wire_bytes(CollectiveOp::kReduce, size, rank, count, element, size - 1);
          comm.gather(x.data(), y.data(), count, dtype, size - 1, "a")->wait();
          gather += wire_bytes(CollectiveOp::kGather, size, rank, count, element, size - 1);
          comm.scatter(x.data(), y.data(), count, dtype, size - 1, "a")->wait();
          scatter += wire_bytes(CollectiveOp::kScatter, size, rank, count, element, size - 1);
          comm.all_to_all(x.data(), y.data(), count, dtype, "a")->wait();
          all_to_all += wire_bytes(CollectiveOp::kAllToAll, size, rank, count, element);
          if (size == 1) continue;
          const WorkPtr out = comm.send(x.data(), count, dtype, (rank + 1) % size, "m");
          comm.recv(y.data(), count, dtype, (rank + size - 1) % size, "m")->wait();
          out->wait();
          sent += wire_bytes(CollectiveOp::kSend, size, rank, count, element);
        }
      comm.barrier("b")->wait();

      std::vector<TrafficCount> expected = {
          {"a", CollectiveOp::kAllReduce, size, calls, all_reduce},
          {"a", CollectiveOp::kAllGather, size, calls, all_gather},
          {"a", CollectiveOp::kReduceScatter, size, calls, reduce_scatter},
          {"a", CollectiveOp::kBroadcast, size, calls, broadcast},
          {"a", CollectiveOp::kReduce, size, calls, reduce},
          {"a", CollectiveOp::kGather, size, calls, gather},
          {"a", CollectiveOp::kScatter, size, calls, scatter},
          {"a", CollectiveOp::kAllToAll, size, calls, all_to_all},
          {"b", CollectiveOp::kBarrier, size, 1, 0}};
      if (size > 1) {
        expected.push_back({"m", CollectiveOp::kSend, size, calls, sent});
        expected.push_back({"m", CollectiveOp::kRecv, size, calls, 0});
      }
      const std::vector<TrafficCount> counted = comm.traffic();
      REQUIRE(counted.size() == expected.size());
      for (size_t i = 0; i < counted.size(); ++i) {
        CAPTURE(size);
        CAPTURE(i);
        CHECK(counted[i].label == expected[i].label);
        CHECK(counted[i].op == expected[i].op);
        CHECK(counted[i].group_size == expected[i].group_size);
        CHECK(counted[i].calls == expected[i].calls);
        CHECK(counted[i].wire_bytes == expected[i].wire_bytes);
      }
    });
}

TEST_CASE("a group costs the memory that smp::segment_bytes predicts") {
  for (const int size : kSizes)
    run_ranks(size,
              [&](Communicator& comm) { CHECK(comm.segment_bytes() == segment_bytes(size)); });
  // The parts of a rank's share, in their order: none overlaps, and the last ends inside it.
  for (const int size : {2, 3, 5, 8, 64}) {
    std::vector<std::byte> memory(segment::GroupBlock::bytes(size));
    CHECK(memory.size() == static_cast<size_t>(segment_bytes(size) * size));
    const segment::GroupBlock block(memory.data(), size);
    for (const int rank : {0, size - 1}) {
      const auto at = [&](const void* part) {
        return static_cast<const std::byte*>(part) - block.share(rank);
      };
      const int before = (rank + size - 1) % size;
      CHECK(at(&block.control(rank) + 1) <= at(&block.mail(rank, 0)));
      CHECK(at(&block.mail(rank, size - 1) + 1) <= at(&block.taken(0, rank)));
      CHECK(at(&block.taken(size - 1, rank) + 1) <= at(&block.mail_taken(0, rank)));
      CHECK(at(&block.mail_taken(size - 1, rank) + 1) <= at(block.slot(rank, 0, 0, 0)));
      CHECK(at(block.slot(rank, 0, 0, 0)) + kRingBytes <=
            at(block.mail_chunk(rank, (rank + 1) % size, 0, 0)));
      CHECK(at(block.mail_chunk(rank, before, segment::GroupBlock::kMailChunks - 1, 0)) +
                block.mail_room() <=
            segment_bytes(size));
    }
  }
  CHECK(segment_bytes(1) == 0);
  CHECK(segment_bytes(2) == 4096 + 2 * 4 * 262144 + 1048576);
  CHECK(segment_bytes(4) == 4096 + 2 * 4 * 262144 + 1048576);
  CHECK(segment_bytes(8) == 8192 + 2 * 4 * 262144 + 1048576);
}

// Slots of any lengths may follow each other, and as many of them are read at once as a ring has.
TEST_CASE("slots and chunks move about in their places, and never into another's") {
  using segment::GroupBlock;
  constexpr int kSize = 3;
  std::vector<std::byte> memory(GroupBlock::bytes(kSize));
  const GroupBlock block(memory.data(), kSize);
  // Of `count` places one after the other: those of any other that may be read at the same time.
  const auto check = [&](uint64_t count, int64_t room, const auto& place) {
    const std::vector<int64_t> lengths = {1,        4096,     4097,         room / 16,
                                          room / 5, room / 2, room / 2 + 1, room};
    std::mt19937 random(1);
    std::deque<std::pair<const std::byte*, int64_t>> read;
    std::set<const std::byte*> shortest, short_ones, longest;
    for (uint64_t i = 0; i < 20000; ++i) {
      const int64_t bytes = lengths[random() % lengths.size()];
      const std::byte* const at = place(i, bytes);
      if (bytes == 4096) shortest.insert(at);
      if (bytes == room / 16) short_ones.insert(at);
      if (bytes == room) longest.insert(at);
      for (const auto& [other, length] : read) CHECK((at + bytes <= other || other + length <= at));
      read.emplace_back(at, bytes);
      if (read.size() == count) read.pop_front();
    }
    CHECK(shortest.size() == count);
    CHECK(longest.size() == count);
    return short_ones.size();
  };
  CHECK(check(kRingSlots, kSlotBytes, [&](uint64_t i, int64_t bytes) {
          return block.slot(1, i, bytes, kSlotBytes);
        }) == 2 * 16 * kRingSlots);
  CHECK(check(GroupBlock::kMailChunks, block.mail_room(), [&](uint64_t i, int64_t bytes) {
          return block.mail_chunk(1, 2, i, bytes);
        }) == 16 * GroupBlock::kMailChunks);
}
