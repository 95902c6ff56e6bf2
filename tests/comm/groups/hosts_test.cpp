#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/fake_network.h"
#include "comm/layouts.h"
#include "comm/processes.h"
#include "comm/some_of_everything.h"
#include "comm/times.h"
#include "comm/values.h"
#include "net/mesh_order.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::testing;
using std::chrono::milliseconds;

namespace {

// Numbers whose sums depend on the order.
std::vector<float> awkward(int64_t count, int rank) {
  std::vector<float> x(static_cast<size_t>(count));
  std::mt19937 random(unsigned(rank) + 7);
  for (float& value : x) value = std::uniform_real_distribution<float>(-1, 1)(random) * 1e3f;
  return x;
}

std::vector<float> sum_of_all(Communicator& comm, int64_t count) {
  std::vector<float> x = awkward(count, comm.rank());
  comm.all_reduce(x.data(), x.data(), count, DType::kF32, ReduceOp::kSum, "x")->wait();
  return x;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Rounds of two ranks, until nine of them show that each takes less than 30 ms or it is clear that
// they do not, however busy the machine.
class Rounds {
 public:
  std::vector<double> took_ms;
  bool were_quick = false;

  bool another(Communicator& comm) {
    comm.barrier("round")->wait();
    int32_t enough = 0;
    if (comm.rank() == 0 && took_ms.size() == 9) {
      were_quick = median(took_ms) < 30;
      took_ms.clear();
      enough = were_quick || std::chrono::steady_clock::now() - start_ > kSoon;
    }
    comm.broadcast(&enough, 1, DType::kI32, 0, "enough")->wait();
    return enough == 0;
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void groups_of_all_kinds(Communicator& world) {
  const int rank = world.rank();
  std::vector<std::unique_ptr<Communicator>> groups;
  auto join = [&](const std::vector<int>& members) {
    if (std::find(members.begin(), members.end(), rank) != members.end())
      groups.push_back(world.split(members));
  };
  join({0, 2, 4});  // one of each host
  join({1, 3, 5});
  join({2, 3});              // one host
  join({0, 1, 2});           // uneven
  join({5, 0, 3});           // in another order
  join({0, 2, 4, 1, 3, 5});  // not host after host
  join({4, 5, 0, 1});
  std::vector<std::thread> threads;
  for (const auto& group : groups)
    threads.emplace_back([&group] {
      for (const int64_t count : {3, 70001}) some_of_everything(*group, count);
    });
  for (int i = 0; i < 3; ++i) some_of_everything(world, 20000);
  for (std::thread& thread : threads) thread.join();
  if (rank == 2) CHECK(groups[1]->segment_bytes() == segment_bytes(2));
  if (rank == 0)
    CHECK(world.segment_bytes() == segment_bytes(2) + channel_bytes(3) + window_bytes());
}

}  // namespace

TEST_CASE("in a mesh of up to 1024 hosts every pair meets once and no host has two senders") {
  for (const int hosts : {1, 2, 3, 4, 7, 128, 1000, 1024}) {
    const auto many = static_cast<size_t>(hosts);
    std::vector<std::vector<bool>> met(many, std::vector<bool>(many));
    int64_t twice = 0, incast = 0, disagree = 0;
    for (int step = 1; step < hosts; ++step) {
      std::vector<int> senders(static_cast<size_t>(hosts));
      for (int host = 0; host < hosts; ++host) {
        const int to = net::send_to(host, step, hosts);
        twice += met[size_t(host)][size_t(to)] || to == host;
        met[size_t(host)][size_t(to)] = true;
        incast += ++senders[size_t(to)] > 1;
        disagree += net::take_from(to, step, hosts) != host;
      }
    }
    CAPTURE(hosts);
    CHECK(twice + incast + disagree == 0);
    int64_t missed = 0;
    for (const auto& row : met) missed += std::count(row.begin(), row.end(), false) - 1;
    CHECK(missed == 0);
  }
}

TEST_CASE("the grid of a group: as many ranks on each host, host after host, or each rank apart") {
  auto grid = [](const std::vector<int64_t>& hosts) {
    const HostGrid g = host_grid(hosts);
    return std::array<int64_t, 2>{g.hosts, g.per_host};
  };
  using Pair = std::array<int64_t, 2>;
  CHECK(grid({0}) == Pair{1, 1});
  CHECK(grid({3, 3, 3}) == Pair{1, 3});
  CHECK(grid({0, 1}) == Pair{2, 1});
  CHECK(grid({1, 1, 0, 0, 2, 2}) == Pair{3, 2});
  CHECK(grid({0, 0, 1}) == Pair{3, 1});
  CHECK(grid({0, 1, 1, 0}) == Pair{4, 1});
  CHECK(grid({0, 0, 1, 1, 0, 0}) == Pair{6, 1});
}

TEST_CASE("between hosts each operation moves the bytes that smp::wire_bytes predicts") {
  for (const Grid& grid : kGrids)
    run_hosts(grid.hosts, grid.per_host, [&](Communicator& comm) {
      const int size = comm.size(), rank = comm.rank();
      for (const DType dtype : {DType::kF32, DType::kBF16})
        for (const int64_t count : {0, 1, 17, 8193, 100003}) {
          const auto group = comm.split([&] {
            std::vector<int> all(static_cast<size_t>(size));
            for (int r = 0; r < size; ++r) all[size_t(r)] = r;
            return all;
          }());
          const int64_t element = bytes_of(dtype);
          auto planned = [&](CollectiveOp op, int64_t n, int64_t root) {
            return wire_bytes(op, size, rank, n, element, root, grid.hosts);
          };
          Values x(dtype, count * size), y(dtype, count * size);
          const int root = size - 1;
          group->all_reduce(x.data(), y.data(), count, dtype, ReduceOp::kSum, "a")->wait();
          group->all_gather(x.data(), y.data(), count, dtype, "a")->wait();
          group->reduce_scatter(x.data(), y.data(), count * size, dtype, ReduceOp::kSum, "a")
              ->wait();
          group->broadcast(x.data(), count, dtype, root, "a")->wait();
          group->reduce(x.data(), y.data(), count, dtype, ReduceOp::kSum, root, "a")->wait();
          group->gather(x.data(), y.data(), count, dtype, root, "a")->wait();
          group->scatter(x.data(), y.data(), count, dtype, root, "a")->wait();
          group->all_to_all(x.data(), y.data(), count, dtype, "a")->wait();
          const WorkPtr out = group->send(x.data(), count, dtype, (rank + 1) % size, "m");
          group->recv(y.data(), count, dtype, (rank + size - 1) % size, "m")->wait();
          out->wait();
          const auto counted = group->traffic();
          REQUIRE(counted.size() == 10);
          CAPTURE(grid.hosts);
          CAPTURE(grid.per_host);
          CAPTURE(count);
          CHECK(counted[0].wire_bytes == planned(CollectiveOp::kAllReduce, count, 0));
          CHECK(counted[1].wire_bytes == planned(CollectiveOp::kAllGather, count, 0));
          CHECK(counted[2].wire_bytes == planned(CollectiveOp::kReduceScatter, count * size, 0));
          CHECK(counted[3].wire_bytes == planned(CollectiveOp::kBroadcast, count, root));
          CHECK(counted[4].wire_bytes == planned(CollectiveOp::kReduce, count, root));
          CHECK(counted[5].wire_bytes == planned(CollectiveOp::kGather, count, root));
          CHECK(counted[6].wire_bytes == planned(CollectiveOp::kScatter, count, root));
          CHECK(counted[7].wire_bytes == planned(CollectiveOp::kAllToAll, count, 0));
          CHECK(counted[8].wire_bytes == count * element);
          CHECK(counted[9].wire_bytes == 0);
          for (const TrafficCount& row : counted) CHECK(row.group_size == size);
        }
    });
}

TEST_CASE(
    "sums are the same bits on all ranks and in all runs, one rank to a host: as in one host") {
  constexpr int64_t kCount = 300007;
  for (const int64_t count : {int64_t{1000}, kCount}) {
    std::vector<float> one_host;
    run_ranks(4, [&](Communicator& comm) {
      const auto sum = sum_of_all(comm, count);
      if (comm.rank() == 0) one_host = sum;
    });
    for (const Grid grid : {Grid{4, 1}, Grid{2, 2}}) {
      std::array<std::vector<float>, 8> sums;
      for (int run = 0; run < 2; ++run) {
        HostsOptions options;
        options.faults.seed = uint64_t(run) + 1;
        options.faults.delay_polls = 5;
        run_hosts(
            grid.hosts, grid.per_host,
            [&](Communicator& comm) {
              sums[size_t(run * 4 + comm.rank())] = sum_of_all(comm, count);
            },
            options);
      }
      for (const auto& sum : sums) CHECK(same_bits(sum, sums[0]));
      // Small sums and those of lone ranks are made in the order of one host's.
      if (grid.per_host == 1 || count == 1000) CHECK(same_bits(sums[0], one_host));
    }
  }
}

TEST_CASE("a network that delays, overtakes, refuses and is slow changes nothing but the time" *
          doctest::test_suite("by writes")) {
  NetworkFaults late, refusing, mixed, slow, quiet, own;
  late.delay_polls = 30;
  refusing.refuse = 0.7;
  mixed.delay_polls = 10, mixed.reorder = true, mixed.refuse = 0.3, mixed.at_once = 1;
  slow.slow_rank = 1;
  quiet.rings = true, quiet.refuse = 0.2;
  own.wants_own_memory = true, own.refuse = 0.2, own.reorder = true, own.delay_polls = 5;
  uint64_t seed = 0;
  for (NetworkFaults faults : {late, refusing, mixed, slow, quiet, own})
    for (const Grid grid : {Grid{3, 1}, Grid{2, 2}}) {
      faults.seed = ++seed;
      HostsOptions options;
      options.faults = faults;
      options.afterwards = [](FakeNetwork& network) {
        // Credits see to it that a receive has been given for every message.
        CHECK(network.unexpected() == 0);
      };
      run_hosts(
          grid.hosts, grid.per_host,
          [](Communicator& comm) {
            // The last is longer than a piece of what goes straight from memory to memory.
            for (const int64_t count : {1, 5000, 140001}) some_of_everything(comm, count);
          },
          options);
    }
}

// What went straight was counted as if its peer had been told of credits by it.
TEST_CASE("long messages that go straight one way leave the short ones of the other way going" *
          doctest::test_suite("by writes")) {
  run_hosts(2, 1, [](Communicator& comm) {
    constexpr int64_t kLong = 1 << 18;
    std::vector<std::byte> x(kLong);
    const int peer = 1 - comm.rank();
    for (int i = 0; i < 20; ++i) {
      const int64_t out = comm.rank() == 0 ? 10 : kLong, in = comm.rank() == 0 ? kLong : 10;
      const WorkPtr sent = comm.send(x.data(), out, DType::kU8, peer, "m");
      std::vector<std::byte> y(static_cast<size_t>(in));
      comm.recv(y.data(), in, DType::kU8, peer, "m")->wait();
      sent->wait();
    }
  });
}

TEST_CASE("bursts of short messages both ways, long ones between them, keep their order" *
          doctest::test_suite("by writes")) {
  NetworkFaults none, mixed, quiet;
  mixed.delay_polls = 10, mixed.reorder = true, mixed.refuse = 0.3, mixed.at_once = 2;
  quiet.rings = true;
  for (const NetworkFaults& faults : {none, mixed, quiet}) {
    HostsOptions options;
    options.faults = faults;
    options.afterwards = [](FakeNetwork& network) { CHECK(network.unexpected() == 0); };
    run_hosts(
        2, 1,
        [](Communicator& comm) {
          constexpr int kMessages = 60;
          const int peer = 1 - comm.rank();
          auto bytes_of_message = [](int i) { return i % 20 == 13 ? 150000 : i * 613 % 6000; };
          std::vector<std::vector<int8_t>> out, in;
          std::vector<WorkPtr> works;
          for (int i = 0; i < kMessages; ++i) {
            out.emplace_back(size_t(bytes_of_message(i)), int8_t(i + 100 * comm.rank()));
            in.emplace_back(size_t(bytes_of_message(i)));
          }
          for (int i = 0; i < kMessages; ++i)
            works.push_back(
                comm.send(out[size_t(i)].data(), bytes_of_message(i), DType::kU8, peer, "burst"));
          for (int i = 0; i < kMessages; ++i)
            works.push_back(
                comm.recv(in[size_t(i)].data(), bytes_of_message(i), DType::kU8, peer, "burst"));
          for (const WorkPtr& work : works) work->wait();
          for (int i = 0; i < kMessages; ++i)
            CHECK(in[size_t(i)] ==
                  std::vector<int8_t>(size_t(bytes_of_message(i)), int8_t(i + 100 * peer)));
        },
        options);
  }
}

TEST_CASE("elements of a long all_reduce that do not divide take no messages of their own") {
  for (const int64_t count : {int64_t{30000}, int64_t{300000}}) {  // of one round, and of several
    std::vector<int64_t> messages;
    for (const int64_t more : {0, 1, 2}) {
      HostsOptions options;
      options.afterwards = [&](FakeNetwork& network) {
        messages.push_back(network.data_messages());
      };
      run_hosts(
          3, 1, [&](Communicator& comm) { sum_of_all(comm, count + more); }, options);
    }
    CHECK(messages == std::vector<int64_t>(3, messages[0]));
  }
}

TEST_CASE("a call that nobody waits for goes on over a network without a descriptor") {
  constexpr int64_t kCount = 1 << 18;  // messages enough that the receiver has to grant some more
  HostsOptions options;
  options.faults.rings = options.faults.deaf = true;
  Rounds rounds;
  run_hosts(
      2, 1,
      [&](Communicator& comm) {
        std::vector<float> x(kCount);
        while (rounds.another(comm)) {
          std::this_thread::sleep_for(milliseconds(10));  // the engines' threads fall asleep
          const auto begin = std::chrono::steady_clock::now();
          if (comm.rank() == 0) {
            comm.send(x.data(), kCount, DType::kF32, 1, "x")->wait();
            rounds.took_ms.push_back(milliseconds_since(begin));
          } else {
            const WorkPtr received = comm.recv(x.data(), kCount, DType::kF32, 0, "x");
            std::this_thread::sleep_for(milliseconds(60));
            received->wait();
          }
        }
      },
      options);
  CHECK(rounds.were_quick);
}

TEST_CASE("credits of what was received go over a network without a descriptor at once") {
  constexpr int kFirst = kCredits / 2;
  HostsOptions options;
  options.faults.rings = options.faults.deaf = true;
  Rounds rounds;
  run_hosts(
      2, 1,
      [&](Communicator& comm) {
        float x = 0;
        const auto pass_on = [&](int times) {
          for (int i = 0; i < times; ++i)
            (comm.rank() == 0 ? comm.send(&x, 1, DType::kF32, 1, "x")
                              : comm.recv(&x, 1, DType::kF32, 0, "x"))
                ->wait();
        };
        while (rounds.another(comm)) {
          if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(10));
          pass_on(kFirst);  // they have come before they are received: nobody waits
          std::this_thread::sleep_for(milliseconds(comm.rank() == 0 ? 20 : 90));
          const auto begin = std::chrono::steady_clock::now();
          pass_on(kCredits);  // half of them by the credits of the first
          if (comm.rank() == 0) rounds.took_ms.push_back(milliseconds_since(begin));
        }
      },
      options);
  CHECK(rounds.were_quick);
}

TEST_CASE("a message that the network refused at first leaves, though its call is complete") {
  HostsOptions options;
  options.faults.rings = true;
  options.faults.refuse = 0.9;
  Rounds rounds;
  std::atomic<std::chrono::steady_clock::time_point> begin{};
  run_hosts(
      2, 1,
      [&](Communicator& comm) {
        float x = 0;
        while (rounds.another(comm)) {
          if (comm.rank() == 0) {
            std::this_thread::sleep_for(milliseconds(10));  // the engines' threads fall asleep
            begin = std::chrono::steady_clock::now();
            const WorkPtr sent = comm.send(&x, 1, DType::kF32, 1, "x");
            std::this_thread::sleep_for(milliseconds(60));
            sent->wait();
          } else {
            comm.recv(&x, 1, DType::kF32, 0, "x")->wait();
            rounds.took_ms.push_back(milliseconds_since(begin.load()));
          }
        }
      },
      options);
  CHECK(rounds.were_quick);
}

TEST_CASE("any group: across hosts, inside one, uneven, in another order, from several threads") {
  HostsOptions options;
  for (const bool rings : {false, true}) {
    options.faults.rings = rings;
    run_hosts(3, 2, groups_of_all_kinds, options);
  }
}
