#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/differences.h"
#include "comm/fake_network.h"
#include "comm/layouts.h"
#include "comm/processes.h"
#include "comm/some_of_everything.h"
#include "comm/times.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::net;
using namespace smp::testing;
using std::chrono::milliseconds;

// What goes wrong between hosts: who hears of it, and what is said.
namespace {

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

TEST_CASE("calls that do not match between hosts end on all ranks and name both sides") {
  auto differ = [](int odd) {
    return [odd](Communicator& comm) {
      std::vector<float> x(400000), y(400000);
      const int64_t count = comm.rank() == odd ? 300000 : 400000;
      comm.all_reduce(x.data(), y.data(), count, DType::kF32, ReduceOp::kSum, "data.gradients")
          ->wait();
    };
  };
  for (const std::string& error : errors_between(2, 1, kNever, differ(1)))
    CHECK(error ==
          "mismatch 1: rank 0: all_reduce #1 'data.gradients' of 400000 fp32 does not match "
          "rank 1: all_reduce #1 'data.gradients' of 300000 fp32");
  for (const std::string& error : errors_between(2, 2, kNever, differ(3))) {
    CHECK(error.find("all_reduce #1 'data.gradients' of 400000 fp32 does not match") !=
          std::string::npos);
    CHECK(error.find("rank 3: all_reduce #1 'data.gradients' of 300000 fp32") != std::string::npos);
  }
  const auto messages = errors_between(2, 1, kNever, [](Communicator& comm) {
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

TEST_CASE("of messages that go straight and others that do not, both ends hear that they differ" *
          doctest::test_suite("by writes")) {
  constexpr int64_t kLong = 100000, kShort = 100;
  for (const int64_t sent : {kLong, kShort}) {
    const auto errors = errors_between(2, 1, kNever, [&](Communicator& comm) {
      std::vector<float> x(kLong);
      if (comm.rank() == 0) {
        comm.send(x.data(), sent, DType::kF32, 1, "m")->wait();
        comm.barrier("after")->wait();
      } else {
        comm.recv(x.data(), kLong + kShort - sent, DType::kF32, 0, "m")->wait();
      }
    });
    for (const std::string& error : errors) {
      CAPTURE(error);
      CHECK(
          error.find(fmt::format("rank 0: send #1 'm' of {} fp32 to rank 1 does not match rank 1: "
                                 "recv #1 'm' of {} fp32 from rank 0",
                                 sent, kLong + kShort - sent)) != std::string::npos);
    }
  }
}

TEST_CASE(
    "whatever differs between hosts, op, root, count, dtype or order: all hear of both calls") {
  for (const Grid& grid : {Grid{2, 1}, Grid{2, 2}, Grid{3, 1}, Grid{4, 2}}) {
    const int size = grid.hosts * grid.per_host;
    for (const int odd : {0, size - 1})
      for (const int other_root : std::set<int>{1, size - 1})
        for (const Difference& difference : all_differences(other_root)) {
          const bool is_of_roots = std::string(difference.what) == "root";
          if (!is_of_roots && (other_root != size - 1 || odd == 0 || size > 4)) continue;
          const bool is_soon = is_once_within(kHeard, [&] {
            const auto begin = std::chrono::steady_clock::now();
            for (const std::string& error :
                 errors_between(grid.hosts, grid.per_host, kNever, [&](Communicator& comm) {
                   run_calls(comm, comm.rank() == odd ? difference.odd : difference.usual, false);
                 }))
              CHECK(wrong_with(error, difference, size) == "");
            return milliseconds_since(begin);
          });
          CAPTURE(size);
          CAPTURE(odd);
          CAPTURE(text_of(difference));
          CHECK(is_soon);
        }
  }
}

TEST_CASE("a rank of another host that does not call is named when the time is over") {
  const auto errors = errors_between(2, 1, kNever, [](Communicator& comm) {
    comm.barrier("start")->wait();
    if (comm.rank() == 1) return;
    comm.set_timeout(milliseconds(300));
    float x = 0;
    comm.all_reduce(&x, &x, 1, DType::kF32, ReduceOp::kSum, "x")->wait();
  });
  CHECK(errors[0] ==
        "timeout 1: rank 0: all_reduce #2 'x' of 1 fp32 timed out after 0.3 s: rank 1 has not made "
        "this call (its last call: #1 barrier 'start')");
}

TEST_CASE(
    "a group for whose messages there is no memory is not made, and its rank answers when it is "
    "asked about it") {
  std::atomic<bool> has_thrown{false};
  run_hosts(2, 1, [&](Communicator& comm, FakeNetwork& network) {
    comm.barrier("start")->wait();
    std::string said;
    try {
      if (comm.rank() == 1) {
        network.fill(1);
        CHECK_THROWS_AS(comm.split({0, 1}), std::bad_alloc);
        has_thrown.store(true);
        comm.barrier("end")->wait();  // answers meanwhile
      } else {
        const auto both = comm.split({0, 1});
        while (!has_thrown.load()) std::this_thread::yield();
        both->set_timeout(milliseconds(300));
        both->barrier("x")->wait();
      }
    } catch (const CommError& e) {
      said = text_of(e);
    }
    CHECK(
        said.find("rank 0: barrier #1 'x' timed out after 0.3 s: rank 1 has not made this call") !=
        std::string::npos);
  });
}

TEST_CASE("of several ranks on a host the one that does not call is named on all hosts, no mate") {
  constexpr int kAbsent = 3;
  struct Case {
    const char* description;
    std::function<WorkPtr(Communicator&, std::vector<float>&)> call;
    bool is_asked_for = true;  // before anything of it comes from others
  };
  const Case cases[] = {
      {"barrier #2 'x'", [](Communicator& comm, std::vector<float>&) { return comm.barrier("x"); }},
      {"all_reduce #2 'x' of 1 fp32",
       [](Communicator& comm, std::vector<float>& x) {
         return comm.all_reduce(x.data(), x.data(), 1, DType::kF32, ReduceOp::kSum, "x");
       },
       false},
      {"all_reduce #2 'x' of 60000 fp32",
       [](Communicator& comm, std::vector<float>& x) {
         return comm.all_reduce(x.data(), x.data(), 60000, DType::kF32, ReduceOp::kSum, "x");
       }},
      {"reduce_scatter #2 'x' of 60000 fp32",
       [](Communicator& comm, std::vector<float>& x) {
         return comm.reduce_scatter(x.data(), x.data(), 60000, DType::kF32, ReduceOp::kSum, "x");
       }},
      {"all_gather #2 'x' of 10000 fp32",
       [](Communicator& comm, std::vector<float>& x) {
         return comm.all_gather(x.data() + 60000, x.data(), 10000, DType::kF32, "x");
       },
       false},
      {"broadcast #2 'x' of 60000 fp32 from rank 0",
       [](Communicator& comm, std::vector<float>& x) {
         return comm.broadcast(x.data(), 60000, DType::kF32, 0, "x");
       },
       false},
      {"gather #2 'x' of 10000 fp32 to rank 1",
       [](Communicator& comm, std::vector<float>& x) {
         return comm.gather(x.data() + 60000, x.data(), 10000, DType::kF32, 1, "x");
       },
       false},
      {"all_to_all #2 'x' of 10000 fp32",
       [](Communicator& comm, std::vector<float>& x) {
         return comm.all_to_all(x.data() + 60000, x.data(), 10000, DType::kF32, "x");
       }},
  };
  // Rank 0 alone is in a hurry where it must find out by asking.
  auto errors_of = [&](const Case& c, const Grid& grid, milliseconds timeout) {
    return errors_between(grid.hosts, grid.per_host, kNever, [&](Communicator& comm) {
      comm.barrier("start")->wait();
      if (comm.rank() == kAbsent) return;
      if (comm.rank() == 0 || !c.is_asked_for) comm.set_timeout(timeout);
      std::vector<float> x(120000);
      c.call(comm, x)->wait();
    });
  };
  auto is_right = [](const Case& c, int rank, const std::string& error) {
    auto says = [&](const char* text) { return error.find(text) != std::string::npos; };
    if (rank == kAbsent || (error.empty() && !c.is_asked_for && rank != 1)) return true;
    if (error.rfind(fmt::format("timeout 3: rank {}: {}", rank, c.description), 0) != 0)
      return false;
    return (!c.is_asked_for &&
            says(" s: rank 3 has not made this call (its last call: #1 barrier 'start')")) ||
           (says(" s: rank 2 is in the same call; rank 2 waits for rank 3") &&
            says("(its last call: #1 barrier 'start')"));
  };
  for (const Case& c : cases)
    for (const Grid& grid : {Grid{2, 2}, Grid{3, 2}}) {
      if (!c.is_asked_for && grid.hosts > 2) continue;
      // Again with more time if the machine is too busy for others to have called meanwhile.
      std::vector<std::string> errors;
      size_t right = 0;
      for (milliseconds timeout{20}; timeout < kSoon; timeout *= 8) {
        errors = errors_of(c, grid, timeout);
        right = 0;
        while (right < errors.size() && is_right(c, int(right), errors[right])) ++right;
        if (right == errors.size()) break;
      }
      CAPTURE(c.description);
      CAPTURE(grid.hosts);
      CHECK_MESSAGE(right == errors.size(), errors[std::min(right, errors.size() - 1)]);
    }
}

TEST_CASE("whoever is asked why a call is late and does not answer is named with what is known") {
  std::string error;
  HostsOptions options;
  options.silence = milliseconds(1200);
  run_hosts(
      2, 1,
      [&](Communicator& comm, FakeNetwork& network) {
        comm.barrier("start")->wait();
        if (comm.rank() == 1) {
          CHECK_THROWS_AS(comm.recv(nullptr, 0, DType::kU8, 0, "m")->wait(), CommError);
          return;
        }
        network.part(0, 1);
        comm.set_timeout(milliseconds(5));
        try {
          comm.barrier("next")->wait();
        } catch (const CommError& e) {
          error = text_of(e);
        }
      },
      options);
  CAPTURE(error);
  const bool by_time = error ==
                       "timeout 1: rank 0: barrier #2 'next' timed out after 0.005 s: rank 1 has "
                       "not made this call (no answer; last known call: #1 barrier 'start')";
  // Who is kept from its CPU for long finds the silence first.
  CHECK((by_time || error.find("no message has come from rank 1 for 1.2 s") != std::string::npos));
}

TEST_CASE(
    "who stops between the hops of an exchange is named by the time-out, not by its silence") {
  std::vector<std::string> errors(3);
  HostsOptions options;
  options.exchange = Exchange::kRing;
  options.silence = milliseconds(4000);
  run_hosts(
      3, 1,
      [&](Communicator& comm, FakeNetwork& network) {
        comm.barrier("start")->wait();
        // Its first message is all that anybody waits for who waits for it alone.
        if (comm.rank() == 1) network.stop_after(1, 1);
        while (comm.rank() == 2 && !network.is_stopped(1)) std::this_thread::yield();
        comm.set_timeout(comm.rank() == 2 ? milliseconds(300) : kNever);
        std::vector<float> x(30);
        try {
          comm.all_gather(x.data(), x.data(), 10, DType::kF32, "x")->wait();
          comm.barrier("after")->wait();
        } catch (const CommError& e) {
          errors[size_t(comm.rank())] = text_of(e);
        }
      },
      options);
  CHECK(errors[2] ==
        "timeout 1: rank 2: all_gather #2 'x' of 10 fp32 timed out after 0.3 s: rank 1 stopped in "
        "it (no answer; last known call: #2 all_gather 'x')");
}

TEST_CASE("the failure of one rank ends the calls of all hosts: abort ends one group's alone") {
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

  const auto errors = errors_between(2, 2, kNever, [](Communicator& comm) {
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
  const auto errors = errors_between(2, 2, kNever, [](Communicator& comm) {
    const auto all = comm.split({0, 1, 2, 3});
    all->set_timeout(milliseconds(300));
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
        "peer_lost 1: rank 0: barrier #2 'c': rank 1 has left the group without making the call "
        "(its last call: #1 barrier 'b')");

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
  for (const std::string& error : cut) CHECK(error.find(": the wire is cut") != std::string::npos);
}

TEST_CASE("two hosts that do not reach each other are found by whoever waits, and all hear of it") {
  std::vector<std::string> errors(4);
  HostsOptions options;
  options.silence = milliseconds(1200);
  run_hosts(
      4, 1,
      [&](Communicator& comm, FakeNetwork& network) {
        try {
          comm.barrier("b")->wait();
          network.part(1, 2);
          for (;;) comm.barrier("c")->wait();
        } catch (const CommError& e) {
          errors[size_t(comm.rank())] = text_of(e);
        }
      },
      options);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string& error = errors[size_t(rank)];
    CAPTURE(error);
    CHECK(error.find("peer_lost ") == 0);
    CHECK(error.find(": rank " + std::to_string(rank) + ": barrier #") != std::string::npos);
    const bool by_one =
        error.find(
            "no message has come from rank 2 for 1.2 s, although that rank is alive: its host and "
            "the host of rank 1 do not reach each other") != std::string::npos;
    const bool by_two =
        error.find(
            "no message has come from rank 1 for 1.2 s, although that rank is alive: its host and "
            "the host of rank 2 do not reach each other") != std::string::npos;
    CHECK(by_one != by_two);
  }

  // A rank that computes answers; again with more time if the machine is too busy for that.
  for (const bool rings : {false, true}) {
    options.faults.rings = rings;
    std::string error = "not tried";
    for (options.silence = milliseconds(800); options.silence < kSoon && !error.empty();
         options.silence *= 4) {
      error.clear();
      try {
        run_hosts(
            2, 1,
            [&](Communicator& comm) {
              comm.barrier("b")->wait();
              if (comm.rank() == 1) std::this_thread::sleep_for(options.silence * 3 / 2);
              comm.barrier("c")->wait();
            },
            options);
      } catch (const CommError& e) {
        error = e.what();
      }
    }
    CHECK(error == "");
  }
}
