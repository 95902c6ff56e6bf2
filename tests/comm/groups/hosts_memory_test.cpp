#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/fake_network.h"
#include "comm/layouts.h"
#include "comm/processes.h"
#include "comm/some_of_everything.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::net;
using namespace smp::testing;

// The network reads and writes callers' memory: what ASan sees of it is what this is about.
TEST_CASE("a call that is aborted leaves nothing that touches its memory, and others go on" *
          doctest::test_suite("by writes")) {
  for (const bool is_late : {false, true}) {
    HostsOptions options;
    options.faults.delay_polls = 50;
    options.afterwards = [](FakeNetwork& network) { CHECK(network.unexpected() == 0); };
    run_hosts(
        3, 1,
        [&](Communicator& comm) {
          const auto all = comm.split({0, 1, 2});
          constexpr int64_t kCount = 1 << 18;
          auto own = std::make_unique<std::vector<float>>(kCount);
          auto gathered = std::make_unique<std::vector<float>>(3 * kCount);
          std::string said;
          try {
            const WorkPtr work =
                all->all_gather(own->data(), gathered->data(), kCount, DType::kF32, "g");
            if (comm.rank() == 1) {
              for (int i = 0; i < 20 && is_late; ++i) work->done();
              all->abort("enough");
            }
            work->wait();
            all->barrier("b")->wait();
          } catch (const CommError& e) {
            said = e.what();
          }
          own.reset();
          gathered.reset();
          CHECK(said.find("rank 1 aborted: enough") != std::string::npos);
          some_of_everything(comm, 50000);
        },
        options);
  }
}

TEST_CASE("where what was sent from a caller's memory cannot be called back, its network ends" *
          doctest::test_suite("by writes")) {
  std::vector<std::string> errors(2), later(2);
  std::atomic<int> ended{0};
  run_hosts(2, 1, [&](Communicator& comm, FakeNetwork& network) {
    const auto both = comm.split({0, 1});
    std::vector<float> x(1 << 18);
    network.hold(0);
    try {
      if (comm.rank() == 0) {
        const WorkPtr work = both->send(x.data(), 1 << 18, DType::kF32, 1, "m");
        comm.recv(x.data(), 1, DType::kF32, 1, "it is received")->wait();
        while (!work->done()) both->abort("enough");
      } else {
        const WorkPtr work = both->recv(x.data(), 1 << 18, DType::kF32, 0, "m");
        comm.send(x.data(), 1, DType::kF32, 0, "it is received")->wait();
        work->wait();
      }
    } catch (const CommError& e) {
      errors[size_t(comm.rank())] = e.what();
    }
    try {
      comm.barrier("b")->wait();
    } catch (const CommError& e) {
      later[size_t(comm.rank())] = text_of(e);
    }
    ended.fetch_add(1);
    while (ended.load() < comm.size()) std::this_thread::yield();
  });
  for (int rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    CHECK(errors[size_t(rank)].find("rank 0 aborted: enough") != std::string::npos);
    CHECK(later[size_t(rank)] ==
          fmt::format("peer_lost 0: rank {}: barrier #1 'b': rank 0 has closed its network, "
                      "because the transfers of a failed call could not be cancelled",
                      rank));
  }
}

TEST_CASE("an exception gives up a call between hosts before it frees its buffers" *
          doctest::test_suite("by writes")) {
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

TEST_CASE("calls that do not match are told as such, also where a network has to end for it" *
          doctest::test_suite("by writes")) {
  std::vector<std::string> errors(2);
  std::atomic<int> ended{0};
  run_hosts(2, 1, [&](Communicator& comm, FakeNetwork& network) {
    const auto both = comm.split({0, 1});
    std::vector<float> x(1 << 18), y(2);
    network.hold(0);
    try {
      WorkPtr work;
      if (comm.rank() == 0) {
        work = both->send(x.data(), 1 << 18, DType::kF32, 1, "m");
        comm.recv(y.data(), 1, DType::kF32, 1, "it is received")->wait();
      } else {
        work = both->recv(x.data(), 1 << 18, DType::kF32, 0, "m");
        comm.send(y.data(), 1, DType::kF32, 0, "it is received")->wait();
      }
      both->all_reduce(y.data(), y.data(), 1 + comm.rank(), DType::kF32, ReduceOp::kSum, "y")
          ->wait();
      work->wait();
    } catch (const CommError& e) {
      errors[size_t(comm.rank())] = text_of(e);
    }
    ended.fetch_add(1);
    while (ended.load() < comm.size()) std::this_thread::yield();
  });
  for (const std::string& error : errors) {
    CAPTURE(error);
    CHECK(error.rfind("mismatch", 0) == 0);
    CHECK(error.find("of 1 fp32") != std::string::npos);
    CHECK(error.find("of 2 fp32") != std::string::npos);
  }
}
