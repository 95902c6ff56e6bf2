#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/fabric_ranks.h"
#include "comm/fake_network.h"
#include "comm/processes.h"
#include "comm/survivors.h"
#include "net/network_endpoint.h"

// Memory that receivers open to their peers, and how many messages it takes to say so.
using namespace smp;
using namespace smp::comm;
using namespace smp::mesh;
using namespace smp::testing;
using net::Channel;
using net::NetworkEndpoint;
using std::chrono::milliseconds;

namespace {

constexpr int64_t kLong = 3 * kMessageBytes / 2;

// Receives of a rank and sends of another, which move only when the test polls them.
struct Pair {
  explicit Pair(NetworkFaults faults = {}) : network(2, faults) {
    while (network.notes() < 2) poll();  // of credits
  }
  void poll() {
    for (int i = 0; i < 10; ++i) here->poll(), there->poll();
  }
  // Receive 1, 2, ..., which the test keeps.
  void receive(int64_t bytes) {
    progress::Call call;
    call.op = CollectiveOp::kRecv;
    call.dtype = DType::kU8;
    call.count = bytes;
    call.number = calls.size() + 1;
    calls.push_back(std::make_unique<progress::Call>(call));
    memory.emplace_back(size_t(bytes));
    to.expect(*calls.back(), memory.back().data(), bytes);
    to.defer_advertisement();
  }
  // Sends a piece of what it is invited to; returns whose that is.
  uint64_t send(std::byte value) {
    REQUIRE(from.advertised().load() > from.pieces_sent());
    const uint64_t number = from.advertisement().number;
    const int64_t count = from.advertisement().count;
    const int64_t bytes = std::min(count, there->piece_bytes(count));
    sent.push_back(std::make_unique<std::vector<std::byte>>(size_t(bytes), value));
    there->send_piece(from, *calls[number - 1], sent.back()->data(), bytes);
    return number;
  }

  FakeNetwork network;
  std::unique_ptr<NetworkEndpoint> here{
      new NetworkEndpoint(network.transport(0), 0, 77, milliseconds(10000))};
  std::unique_ptr<NetworkEndpoint> there{
      new NetworkEndpoint(network.transport(1), 1, 77, milliseconds(10000))};
  std::vector<std::unique_ptr<progress::Call>> calls;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::unique_ptr<std::vector<std::byte>>> sent;
  Channel to{*here, 5, 1}, from{*there, 5, 0};
};

// Rank 0 sends `sizes` to rank 1, all called before any is waited for, from memory of each kind.
void burst(Communicator& comm, const std::vector<int64_t>& sizes) {
  for (const bool is_symmetric : {false, true}) {
    std::vector<std::shared_ptr<std::byte[]>> memory;
    std::vector<WorkPtr> works;
    const bool sends = comm.rank() == 0;
    for (const int64_t bytes : sizes) {
      memory.push_back(is_symmetric ? comm.allocate_symmetric(bytes)
                                    : std::shared_ptr<std::byte[]>(new std::byte[size_t(bytes)]()));
      std::fill_n(memory.back().get(), bytes, std::byte(sends ? memory.size() : 0));
    }
    for (size_t i = 0; i < sizes.size(); ++i)
      works.push_back(sends ? comm.send(memory[i].get(), sizes[i], DType::kU8, 1, "m")
                            : comm.recv(memory[i].get(), sizes[i], DType::kU8, 0, "m"));
    for (const WorkPtr& work : works) work->wait();
    for (size_t i = 0; i < sizes.size(); ++i)
      CHECK(std::count(memory[i].get(), memory[i].get() + sizes[i], std::byte(i + 1)) == sizes[i]);
  }
}

}  // namespace

TEST_CASE("receives of the same kind that are called one after the other are told as one" *
          doctest::test_suite("by writes")) {
  NetworkFaults none, mixed;
  mixed.delay_polls = 7, mixed.reorder = true, mixed.refuse = 0.3, mixed.at_once = 1;
  for (NetworkFaults faults : {none, mixed})
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      faults.seed = seed;
      Pair pair(faults);
      const int64_t before = pair.network.notes();
      const auto told = [&] { return pair.network.notes() - before; };
      for (int i = 0; i < 4; ++i) pair.receive(kLong);
      for (int i = 0; i < 2; ++i) pair.receive(kLong + 1);
      while (told() < 1) pair.here->poll();
      pair.poll();
      CHECK(told() == 1);  // of the first: its sender has something to do
      pair.here->send_held();
      while (pair.from.advertised().load() < 6) pair.poll();
      CHECK(told() == 3);
      for (uint64_t number = 1; number <= 6; ++number)
        CHECK(pair.send(std::byte(number)) == number);
      while (pair.to.pieces_received().load() < 6) pair.poll();
      for (uint64_t number = 1; number <= 6; ++number)
        CHECK(pair.memory[number - 1] ==
              std::vector<std::byte>(pair.memory[number - 1].size(), std::byte(number)));
      CHECK(pair.network.unexpected() == 0);
    }
}

TEST_CASE("what is held back is told when a piece has come, with as much as there is room for" *
          doctest::test_suite("by writes")) {
  Pair pair;
  const int64_t before = pair.network.notes();
  const auto told = [&] { return pair.network.notes() - before; };
  pair.receive(kLong);
  for (int i = 0; i < 3; ++i) pair.receive(3 * net::kPieceBytes);
  pair.poll();
  CHECK(pair.from.advertised().load() == 1);
  pair.send(std::byte{1});
  pair.poll();
  // Two calls of three pieces, and two pieces of the third, for which there was room.
  CHECK(pair.from.advertised().load() == 1 + net::kPiecesAhead);
  CHECK(told() == 3);
  for (const uint64_t number : {2, 2, 2, 3, 3, 3, 4, 4}) {
    CHECK(pair.send(std::byte{2}) == number);
    pair.poll();
  }
  CHECK(pair.send(std::byte{2}) == 4);
  pair.poll();
  CHECK(pair.to.pieces_received().load() == 10);
  CHECK(told() == 4);
}

TEST_CASE("who waits for memory of its peer says so only before it sleeps") {
  Pair pair;
  progress::Call call;
  call.number = 1;
  call.count = kLong;
  const int64_t before = pair.network.notes();
  pair.from.report_waiting(call);
  pair.poll();
  CHECK(pair.network.notes() == before);
  pair.there->send_waiting();
  pair.poll();
  CHECK(pair.network.notes() == before + 1);
  CHECK(pair.to.waiting().number == 1);
  pair.from.report_waiting(call);
  pair.receive(kLong);
  pair.poll();
  pair.there->send_waiting();
  CHECK(pair.network.notes() == before + 2);  // it is invited
  call.number = 2;
  pair.from.report_waiting(call);
  pair.there->send_waiting();
  CHECK(pair.network.notes() == before + 2);
  pair.send(std::byte{1});
  pair.poll();
  pair.from.report_waiting(call);
  pair.receive(kLong);
  pair.poll();
  pair.send(std::byte{1});
  const int64_t then = pair.network.notes();
  pair.there->send_waiting();
  pair.poll();
  CHECK(pair.network.notes() == then);  // it was, and all it was invited to has gone
}

TEST_CASE("calls that are given up have all the memory again that was told as one" *
          doctest::test_suite("by writes")) {
  for (const bool is_told : {false, true}) {
    Pair pair;
    for (int i = 0; i < 5; ++i) pair.receive(kLong);
    if (is_told) pair.here->send_held();
    pair.poll();
    pair.send(std::byte{1});
    std::vector<Channel*> channels{&pair.to};
    // Its peer answers when it is polled, as its engine would.
    const auto is_over = [&] { return pair.there->poll(), false; };
    const auto has_gone = [](int) { return false; };
    std::vector<Channel*> others{&pair.from};
    REQUIRE(pair.there->release_buffers(
        others, milliseconds(500), [] { return false; }, has_gone));
    REQUIRE(pair.here->release_buffers(channels, milliseconds(500), is_over, has_gone));
    pair.memory.clear();
    pair.here->send_held();
    pair.poll();
    CHECK(pair.here->counts().bytes_in_flight == 0);
    CHECK(pair.network.unexpected() == 0);
  }
}

TEST_CASE("bursts of receives come where they shall, whatever the network does" *
          doctest::test_suite("by writes")) {
  NetworkFaults none, late, mixed, quiet, own;
  late.delay_polls = 30;
  mixed.delay_polls = 10, mixed.reorder = true, mixed.refuse = 0.3, mixed.at_once = 1;
  quiet.rings = true, quiet.refuse = 0.2;
  own.wants_own_memory = true, own.reorder = true, own.delay_polls = 5;
  uint64_t seed = 0;
  for (NetworkFaults faults : {none, late, mixed, quiet, own}) {
    faults.seed = ++seed;
    HostsOptions options;
    options.faults = faults;
    options.afterwards = [](FakeNetwork& network) { CHECK(network.unexpected() == 0); };
    run_hosts(
        2, 1,
        [](Communicator& comm) {
          burst(comm, std::vector<int64_t>(12, kLong));
          burst(comm, {kLong, kLong, 10, kLong, 3 * net::kPieceBytes, 3 * net::kPieceBytes,
                       3 * net::kPieceBytes, kLong + 1, kLong + 1, 0, kLong});
        },
        options);
  }
}

TEST_CASE("receives that nobody waits for take what comes, of a sender that waits or only asks" *
          doctest::test_suite("by writes")) {
  NetworkFaults none, rings, deaf;
  rings.rings = true;
  deaf.rings = deaf.deaf = true;
  for (const NetworkFaults& faults : {none, rings, deaf})
    for (const bool asks : {false, true}) {
      HostsOptions options;
      options.faults = faults;
      std::atomic<bool> is_over{false};
      run_hosts(
          2, 1,
          [&](Communicator& comm) {
            const bool sends = comm.rank() == 0;
            std::vector<std::byte> memory(size_t(5 * kLong), std::byte(sends));
            std::vector<WorkPtr> works;
            for (int i = 0; i < 5; ++i)
              works.push_back(
                  sends ? comm.send(memory.data() + i * kLong, kLong, DType::kU8, 1, "m")
                        : comm.recv(memory.data() + i * kLong, kLong, DType::kU8, 0, "m"));
            if (!sends) is_over.wait(false);  // it computes
            const auto end = [&] { is_over = true, is_over.notify_all(); };
            try {
              for (const WorkPtr& work : works) {
                while (sends && asks && !work->done()) std::this_thread::yield();
                work->wait();
              }
            } catch (...) {
              end();
              throw;
            }
            end();
            CHECK(memory == std::vector<std::byte>(memory.size(), std::byte{1}));
          },
          options);
    }
}

TEST_CASE("in a burst of receives the one that does not match is named" *
          doctest::test_suite("by writes")) {
  std::vector<std::string> said(2);
  run_hosts(2, 1, [&](Communicator& comm) {
    const auto both = comm.split({0, 1});
    std::vector<std::byte> x(size_t(kLong) + 1);
    std::vector<WorkPtr> works;
    try {
      for (int i = 1; i <= 5; ++i)
        works.push_back(comm.rank() == 0
                            ? both->send(x.data(), kLong + (i == 4), DType::kU8, 1, "m")
                            : both->recv(x.data(), kLong, DType::kU8, 0, "m"));
      for (const WorkPtr& work : works) work->wait();
      both->barrier("after")->wait();
    } catch (const CommError& error) {
      said[size_t(comm.rank())] = error.what();
    }
  });
  for (const std::string& error : said) {
    CAPTURE(error);
    CHECK(error.find("rank 0: send #4 'm' of 196609 uint8 to rank 1 does not match rank 1: recv #4 "
                     "'m' of 196608 uint8 from rank 0") != std::string::npos);
  }
}

TEST_CASE("a group that is aborted with receives that were told as one leaves the others going" *
          doctest::test_suite("by writes")) {
  run_hosts(2, 1, [](Communicator& comm) {
    const auto both = comm.split({0, 1});
    auto memory = std::make_unique<std::vector<std::byte>>(size_t(6 * kLong));
    std::vector<WorkPtr> works;
    std::string said;
    try {
      for (int i = 0; i < 6; ++i)
        if (comm.rank() == 1)
          works.push_back(both->recv(memory->data() + i * kLong, kLong, DType::kU8, 0, "m"));
      if (comm.rank() == 0) {
        for (int i = 0; i < 2; ++i) both->send(memory->data(), kLong, DType::kU8, 1, "m")->wait();
        both->abort("enough");
      }
      for (const WorkPtr& work : works) work->wait();
      both->barrier("b")->wait();
    } catch (const CommError& error) {
      said = error.what();
    }
    works.clear();
    memory.reset();
    CHECK(said.find("rank 0 aborted: enough") != std::string::npos);
    burst(comm, std::vector<int64_t>(9, kLong));
  });
}

TEST_CASE("after a death the memory that was told as one is its callers' again, and is told anew" *
          doctest::test_suite("by either protocol")) {
  if (!has_network() || !outlives_deaths()) return;
  auto children = start(3, 1, [](Communicator& comm) -> std::string {
    std::vector<std::byte> memory(size_t(6 * kLong), std::byte(comm.rank()));
    bool is_first = true;
    const auto rest = shrink_after(comm, [&](Communicator& old) {
      std::vector<WorkPtr> works;
      if (old.rank() == 2) {
        float is_told = 0;
        old.recv(&is_told, 1, DType::kF32, 1, "told")->wait();
        raise(SIGKILL);
      }
      if (old.rank() == 1 && std::exchange(is_first, false)) {
        for (int i = 0; i < 6; ++i)
          works.push_back(old.recv(memory.data() + i * kLong, kLong, DType::kU8, 0, "m"));
        const float is_told = 1;
        old.send(&is_told, 1, DType::kF32, 2, "told")->wait();
      }
      old.barrier("never")->wait();
      for (const WorkPtr& work : works) work->wait();
    });
    // What is here was never sent; it is this rank's to write.
    std::fill(memory.begin(), memory.end(), std::byte(7 + comm.rank()));
    burst(*rest.world, std::vector<int64_t>(6, kLong));
    rest.world->barrier("end")->wait();
    const bool is_own = std::count(memory.begin(), memory.end(), std::byte(7 + comm.rank())) ==
                        int64_t(memory.size());
    return is_own ? "good" : "somebody wrote to it";
  });
  for (const int rank : {0, 1}) CHECK(children[rank].join().said == "good");
  children[2].join();
}
