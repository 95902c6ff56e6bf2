#include "smp/comm/all_to_all_v.h"

#include <doctest/doctest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

#include "comm/layouts.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::testing;

namespace {

// Elements from one rank to another: none, a few, or more than a message takes at once.
int64_t count_of(int from, int to, int round) {
  if ((from + 2 * to + round) % 3 == 0) return 0;
  return (from * 37 + to * 11 + round * 5) % 50 + (from == 1 && to == 2 ? 300000 : 1);
}
int32_t element_of(int from, int to, int64_t i) {
  return static_cast<int32_t>(from * 1000003 + to * 7919 + i);
}

void exchange(Communicator& comm, int round) {
  const int size = comm.size(), own = comm.rank();
  std::vector<int64_t> sent, come;
  std::vector<int32_t> in;
  for (int peer = 0; peer < size; ++peer) {
    sent.push_back(count_of(own, peer, round));
    come.push_back(count_of(peer, own, round));
    for (int64_t i = 0; i < sent.back(); ++i) in.push_back(element_of(own, peer, i));
  }
  std::vector<int32_t> out(std::accumulate(come.begin(), come.end(), size_t{0}), -1);
  const WorkPtr work = all_to_all_v(comm, in.data(), sent, out.data(), come, DType::kI32, "rows");
  work->wait();
  CHECK(work->done());
  int64_t wrong = 0, at = 0;
  for (int peer = 0; peer < size; ++peer) {
    for (int64_t i = 0; i < come[static_cast<size_t>(peer)]; ++i, ++at) {
      wrong += out[static_cast<size_t>(at)] != element_of(peer, own, i);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("an all_to_all of uneven parts brings each part to its rank, inside hosts and between") {
  const auto rounds = [](Communicator& comm) {
    for (int round = 0; round < 3; ++round) exchange(comm, round);
  };
  for (const int size : {1, 2, 3, 4, 8}) {
    CAPTURE(size);
    run_ranks(size, rounds);
  }
  run_hosts(2, 2, rounds, {});
}

// What an expert's ranks do: two exchanges under way in groups of their own.
TEST_CASE("uneven exchanges of two groups are under way at once") {
  run_ranks(4, [](Communicator& world) {
    const auto half = world.split(world.rank() < 2 ? std::vector<int>{0, 1} : std::vector{2, 3});
    const int size = world.size();
    std::vector<int64_t> all(static_cast<size_t>(size), 5), some{3, 3};
    std::vector<double> in(20, world.rank()), out(20), in_half(6, -world.rank()), out_half(6);
    const WorkPtr of_all = all_to_all_v(world, in.data(), all, out.data(), all, DType::kF64, "all");
    all_to_all_v(*half, in_half.data(), some, out_half.data(), some, DType::kF64, "half")->wait();
    of_all->wait();
    for (int i = 0; i < 20; ++i) CHECK(out[static_cast<size_t>(i)] == i / 5);
    const int first = world.rank() < 2 ? 0 : 2;
    for (int i = 0; i < 6; ++i) CHECK(out_half[static_cast<size_t>(i)] == -(first + i / 3));
  });
}

TEST_CASE("an uneven exchange refuses counts that cannot be right") {
  run_ranks(2, [](Communicator& comm) {
    int32_t x[4] = {};
    const auto call = [&](const std::vector<int64_t>& sent, const std::vector<int64_t>& come) {
      all_to_all_v(comm, x, sent, x + 2, come, DType::kI32, "rows");
    };
    CHECK_THROWS_WITH_AS(call({1}, {1, 1}), "all_to_all_v 'rows': 1 and 2 counts for 2 ranks",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(call({1, -1}, {1, 1}),
                         "all_to_all_v 'rows': rank 1 has a part of -1 elements",
                         std::invalid_argument);
    const auto own = static_cast<size_t>(comm.rank());
    std::vector<int64_t> sent{0, 0}, come{0, 0};
    sent[own] = 2, come[own] = 1;
    CHECK_THROWS_AS(call(sent, come), std::invalid_argument);
    comm.barrier("b")->wait();
  });
}
