#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/fake_network.h"
#include "comm/layouts.h"
#include "comm/processes.h"
#include "comm/values.h"
#include "mesh_order.h"

using namespace smp;
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

// Every operation once, with what it must give.
void some_of_everything(Communicator& comm, int64_t count) {
  const int size = comm.size(), rank = comm.rank();
  std::vector<int32_t> all(size_t(count * size)), own(static_cast<size_t>(count), rank + 1);
  comm.all_gather(own.data(), all.data(), count, DType::kI32, "g")->wait();
  for (int r = 0; r < size; ++r) {
    CAPTURE(size);
    CAPTURE(rank);
    CAPTURE(r);
    CAPTURE(count);
    CHECK(all[size_t(r * count)] == r + 1);
  }
  std::vector<int32_t> part(static_cast<size_t>(count));
  comm.reduce_scatter(all.data(), part.data(), count * size, DType::kI32, ReduceOp::kSum, "s")
      ->wait();
  CHECK(part[0] == (rank + 1) * size);
  CHECK(part.back() == (rank + 1) * size);
  comm.all_reduce(own.data(), own.data(), count, DType::kI32, ReduceOp::kSum, "r")->wait();
  CHECK(own[0] == size * (size + 1) / 2);
  CHECK(own.back() == size * (size + 1) / 2);
  std::vector<int32_t> root(static_cast<size_t>(count), rank == size - 1 ? 42 : 0);
  comm.broadcast(root.data(), count, DType::kI32, size - 1, "b")->wait();
  CHECK(root.back() == 42);
  std::vector<int32_t> got(static_cast<size_t>(count));
  const WorkPtr out = comm.send(part.data(), count, DType::kI32, (rank + 1) % size, "m");
  comm.recv(got.data(), count, DType::kI32, (rank + size - 1) % size, "m")->wait();
  out->wait();
  CHECK(got.back() == ((rank + size - 1) % size + 1) * size);
  int32_t sum = rank + 1, here = -1;
  comm.reduce(&sum, &here, 1, DType::kI32, ReduceOp::kProduct, 0, "p")->wait();
  CHECK(here == (rank == 0 ? std::tgamma(size + 1) : -1));
  comm.gather(own.data(), all.data(), count, DType::kI32, size - 1, "g")->wait();
  comm.scatter(all.data(), got.data(), count, DType::kI32, size - 1, "s")->wait();
  CHECK(got == own);
  comm.all_to_all(std::vector<int32_t>(size_t(count * size), rank).data(), all.data(), count,
                  DType::kI32, "t")
      ->wait();
  for (int r = 0; r < size; ++r) CHECK(all[size_t(r * count + count - 1)] == r);
  comm.barrier("e")->wait();
}

// What each rank's CommError says.
std::vector<std::string> errors_between(int hosts, int per_host, milliseconds timeout,
                                        const std::function<void(Communicator&)>& program) {
  std::vector<std::string> errors(size_t(hosts * per_host));
  std::atomic<int> ended{0};
  HostsOptions options;
  options.timeout = timeout;
  run_hosts(
      hosts, per_host,
      [&](Communicator& comm) {
        try {
          program(comm);
        } catch (const CommError& e) {
          errors[size_t(comm.rank())] = text_of(e);
        }
        ended.fetch_add(1);
        while (ended.load() < comm.size()) std::this_thread::yield();  // nobody leaves before
      },
      options);
  return errors;
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
        const int to = shm::send_to(host, step, hosts);
        twice += met[size_t(host)][size_t(to)] || to == host;
        met[size_t(host)][size_t(to)] = true;
        incast += ++senders[size_t(to)] > 1;
        disagree += shm::take_from(to, step, hosts) != host;
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
    "sums are the same bits on all ranks and in all runs; one rank to a host: as in one host") {
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

TEST_CASE("a network that delays, overtakes, refuses and is slow changes nothing but the time") {
  NetworkFaults late, refusing, mixed, slow;
  late.delay_polls = 30;
  refusing.refuse = 0.7;
  mixed.delay_polls = 10, mixed.reorder = true, mixed.refuse = 0.3, mixed.at_once = 1;
  slow.slow_rank = 1;
  uint64_t seed = 0;
  for (NetworkFaults faults : {late, refusing, mixed, slow})
    for (const Grid grid : {Grid{3, 1}, Grid{2, 2}}) {
      faults.seed = ++seed;
      HostsOptions options;
      options.faults = faults;
      options.afterwards = [](FakeNetwork& network) {
        // Credits see to it that a receive waits for every message.
        CHECK(network.unexpected() == 0);
      };
      run_hosts(
          grid.hosts, grid.per_host,
          [](Communicator& comm) {
            for (const int64_t count : {1, 5000, 120001}) some_of_everything(comm, count);
          },
          options);
    }
}

TEST_CASE("any group: across hosts, inside one, uneven, in another order, from several threads") {
  run_hosts(3, 2, [](Communicator& world) {
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
  });
}

TEST_CASE("calls that do not match between hosts end on all ranks and name both sides") {
  auto differ = [](int odd) {
    return [odd](Communicator& comm) {
      std::vector<float> x(400000), y(400000);
      const int64_t count = comm.rank() == odd ? 300000 : 400000;
      comm.all_reduce(x.data(), y.data(), count, DType::kF32, ReduceOp::kSum, "data.gradients")
          ->wait();
    };
  };
  for (const std::string& error : errors_between(2, 1, milliseconds(20000), differ(1)))
    CHECK(error ==
          "mismatch 1: rank 0: all_reduce #1 'data.gradients' of 400000 fp32 does not match "
          "rank 1: all_reduce #1 'data.gradients' of 300000 fp32");
  for (const std::string& error : errors_between(2, 2, milliseconds(20000), differ(3))) {
    CHECK(error.find("all_reduce #1 'data.gradients' of 400000 fp32 does not match") !=
          std::string::npos);
    CHECK(error.find("rank 3: all_reduce #1 'data.gradients' of 300000 fp32") != std::string::npos);
  }
  const auto messages = errors_between(2, 1, milliseconds(20000), [](Communicator& comm) {
    float x[8];
    if (comm.rank() == 0) {
      comm.send(x, 4, DType::kF32, 1, "m")->wait();
      comm.barrier("after")->wait();
    } else {
      comm.recv(x, 5, DType::kF32, 0, "m")->wait();
    }
  });
  CHECK(messages[1] ==
        "mismatch 1: rank 0: send #1 'm' of 4 fp32 to rank 1 does not match rank 1: recv #1 'm' of "
        "5 fp32 from rank 0");
  CHECK(messages[0] == messages[1]);
}

TEST_CASE("a rank of another host that does not call is named when the time is over") {
  const auto errors = errors_between(2, 1, milliseconds(300), [](Communicator& comm) {
    comm.barrier("start")->wait();
    if (comm.rank() == 1) return;
    float x = 0;
    comm.all_reduce(&x, &x, 1, DType::kF32, ReduceOp::kSum, "x")->wait();
  });
  CHECK(errors[0] ==
        "timeout 1: rank 0: all_reduce #2 'x' of 1 fp32 timed out after 0.3 s: rank 1 has not "
        "called it (its last call: #1 barrier 'start')");
}

TEST_CASE("the failure of one rank ends the calls of all hosts; abort ends one group's alone") {
  std::vector<std::string> others(4);
  CHECK_THROWS_WITH_AS(run_hosts(2, 2,
                                 [&](Communicator& comm) {
                                   if (comm.rank() == 2) throw std::logic_error("the first cause");
                                   try {
                                     some_of_everything(comm, 1000);
                                   } catch (const CommError& e) {
                                     others[size_t(comm.rank())] = text_of(e);
                                     throw;
                                   }
                                 }),
                       "the first cause", std::logic_error);
  for (const int rank : {0, 1, 3})
    CHECK(others[size_t(rank)].find("rank 2 failed: the first cause") != std::string::npos);

  const auto errors = errors_between(2, 2, milliseconds(20000), [](Communicator& comm) {
    const auto all = comm.split({0, 1, 2, 3});
    if (comm.rank() == 3) all->abort("enough");
    std::string said;
    try {
      all->barrier("b")->wait();
    } catch (const CommError& e) {
      said = e.what();
    }
    CHECK(said.find("rank 3 aborted: enough") != std::string::npos);
    some_of_everything(comm, 10);  // the others go on
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("abort between hosts ends the steps inside the hosts too, before their time is over") {
  const auto errors = errors_between(2, 2, milliseconds(300), [](Communicator& comm) {
    const auto all = comm.split({0, 1, 2, 3});
    if (comm.rank() == 3) all->abort("enough");
    std::vector<float> x(100000);
    try {
      all->all_reduce(x.data(), x.data(), 100000, DType::kF32, ReduceOp::kSum, "x")->wait();
    } catch (const CommError&) {
    }
    x.clear();
    x.shrink_to_fit();
    std::this_thread::sleep_for(milliseconds(600));
    some_of_everything(comm, 10);
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("an exception gives up a call between hosts before it frees its buffers") {
  std::vector<std::string> others(4);
  CHECK_THROWS_WITH_AS(run_hosts(2, 2,
                                 [&](Communicator& comm) {
                                   std::vector<float> x(1 << 20);
                                   const WorkPtr sum =
                                       comm.all_reduce(x.data(), x.data(), 1 << 20, DType::kF32,
                                                       ReduceOp::kSum, "x");
                                   if (comm.rank() == 2) throw std::logic_error("out of luck");
                                   try {
                                     sum->wait();
                                     comm.barrier("b")->wait();
                                   } catch (const CommError& e) {
                                     others[size_t(comm.rank())] = text_of(e);
                                   }
                                 }),
                       "out of luck", std::logic_error);
  for (const int rank : {0, 1, 3}) {
    CAPTURE(others[size_t(rank)]);
    CHECK(others[size_t(rank)].find("rank 2 failed") != std::string::npos);
  }
}

TEST_CASE("a rank that leaves and one that cannot be reached are told from each other") {
  std::string left;
  run_hosts(2, 1, [&](Communicator& comm) {
    comm.barrier("b")->wait();
    if (comm.rank() == 1) return;
    try {
      comm.barrier("c")->wait();
    } catch (const CommError& e) {
      left = text_of(e);
    }
  });
  CHECK(left ==
        "peer_lost 1: rank 0: barrier #2 'c': rank 1 has left the group without calling it (its "
        "last call: #1 barrier 'b')");

  std::vector<std::string> cut(2);
  std::atomic<int> ended{0};
  run_hosts(2, 1, [&](Communicator& comm, FakeNetwork& network) {
    comm.barrier("b")->wait();
    if (comm.rank() == 1) network.cut(1);
    try {
      comm.barrier("c")->wait();
      comm.barrier("d")->wait();
    } catch (const CommError& e) {
      cut[size_t(comm.rank())] = e.what();
    }
    ended.fetch_add(1);
    while (ended.load() < comm.size()) std::this_thread::yield();
  });
  for (const std::string& error : cut)
    CHECK(error.find("any more: the wire is cut") != std::string::npos);
}
