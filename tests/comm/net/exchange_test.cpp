#include "smp/comm/net/exchange.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/fake_network.h"
#include "net/exchange_schedule.h"
#include "net/wire_message.h"
#include "smp/comm/jobs/thread_group.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::net;
using namespace smp::testing;
using net::ExchangeSchedule;
using net::ExchangeStep;

namespace {

// How many bytes of each host's part, from its begin on, a host has.
using Parts = std::vector<int64_t>;

// What goes wrong where each host sends and takes as its program does: messages that a host does
// not have yet or gets out of turn, that are no message, are more than a rail has room for, or of
// which it is not said right whether their sender may have waited for others.
struct Proof {
  int64_t missing = 0, disorder = 0, badly_sized = 0, crowded = 0, misjudged = 0;
  bool is_complete = true;
};

// All hosts go on side by side, each hop after hop: no exchange needs a host to be ahead of others.
Proof prove(Exchange exchange, int hosts, int64_t part) {
  const int64_t most = net::step_message_bytes(exchange, part, true);
  std::vector<Parts> has(size_t(hosts), Parts(size_t(hosts), 0));
  std::vector<ExchangeSchedule> hops;
  for (int host = 0; host < hosts; ++host) {
    has[size_t(host)][size_t(host)] = part;
    hops.emplace_back(exchange, host, hosts, part, most);
  }
  Proof proof;
  const int64_t lead = hops[0].lead(), size = hops[0].size();
  // By sender: the hops of the message that it sent, to be found by the one who takes them.
  for (int64_t i = 0; i < size + lead; ++i) {
    for (int host = 0; i < size && host < hosts; ++host) {
      const ExchangeStep hop = hops[size_t(host)][i];
      proof.badly_sized += hop.bytes < 0 || hop.bytes > most || (hop.bytes == 0) != (part == 0);
      visit_parts(hop, hop.sent, hosts, part, [&](int of, int64_t offset, int64_t bytes, int64_t) {
        proof.missing += has[size_t(host)][size_t(of)] < offset + bytes;
      });
      // The receiver takes it in its own hop of this number, and of no other rail's.
      const ExchangeStep theirs = hops[size_t(hop.to)][i];
      proof.disorder += theirs.from != host || theirs.taken != hop.sent || theirs.at != hop.at ||
                        theirs.bytes != hop.bytes;
      int64_t under_way = 1;
      for (int64_t before = std::max<int64_t>(0, i - lead); before < i; ++before)
        under_way += hops[size_t(host)][before].to == hop.to;
      proof.crowded += under_way > 2;
    }
    if (i < lead) continue;
    for (int host = 0; host < hosts; ++host) {
      const ExchangeStep hop = hops[size_t(host)][i - lead];
      const int64_t taken_before = i - 2 * lead;  // by its sender, when it sent this
      proof.misjudged += hop.is_forwarded != (exchange != Exchange::kMesh && taken_before > 0);
      visit_parts(hop, hop.taken, hosts, part, [&](int of, int64_t offset, int64_t bytes, int64_t) {
        int64_t& known = has[size_t(host)][size_t(of)];
        proof.disorder += known != offset;  // also what comes twice
        known = offset + bytes;
      });
    }
  }
  for (const Parts& parts : has)
    for (const int64_t bytes : parts) proof.is_complete &= bytes == part;
  return proof;
}

HostsOptions pinned(Exchange exchange) {
  HostsOptions options;
  options.exchange = exchange;
  return options;
}

std::vector<float> sum_of(Communicator& comm, int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    x[size_t(i)] = 1e3f / float(1 + comm.rank() * 31 + i % 97);  // the order shows in the last bits
  comm.all_reduce(x.data(), x.data(), count, DType::kF32, ReduceOp::kSum, "x")->wait();
  return x;
}

// All call but rank 2.
void check_absent_is_named(int hosts, int per_host, Exchange exchange,
                           const std::function<void(Communicator&)>& call) {
  const int size = hosts * per_host;
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::atomic<int> given_up{0};
  run_hosts(
      hosts, per_host,
      [&](Communicator& comm) {
        comm.barrier("all are here")->wait();
        comm.set_timeout(std::chrono::milliseconds(1000));
        if (comm.rank() != 2) {
          try {
            call(comm);
          } catch (const CommError& e) {
            errors[size_t(comm.rank())] = e.what();
          }
          given_up.fetch_add(1);
        }
        while (given_up.load() < size - 1)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
      },
      pinned(exchange));
  for (int rank = 0; rank < size; ++rank) {
    if (rank == 2) continue;
    CAPTURE(name_of(exchange));
    CAPTURE(errors[size_t(rank)]);
    CHECK(errors[size_t(rank)].find(
              " timed out after 1 s: rank 2 has not made this call (its last call: ") !=
          std::string::npos);
  }
}

}  // namespace

TEST_CASE("each exchange brings every part to every host once, in the order in which it is sent") {
  for (const Exchange exchange : kExchanges)
    for (const int hosts : {2, 3, 4, 5, 7, 8, 13, 32})
      for (const int64_t part : {int64_t{0}, int64_t{1}, int64_t{1000}, kMessageBytes - 1,
                                 kMessageBytes, kMessageBytes + 1, 3 * kMessageBytes + 7}) {
        CAPTURE(name_of(exchange));
        CAPTURE(hosts);
        CAPTURE(part);
        const Proof proof = prove(exchange, hosts, part);
        CHECK(proof.missing + proof.disorder + proof.badly_sized + proof.crowded == 0);
        CHECK(proof.misjudged == 0);
        CHECK(proof.is_complete);
      }
}

TEST_CASE("a thousand hosts exchange small parts in ten messages of each by doubling") {
  for (const Exchange exchange : kExchanges) {
    const ExchangeSchedule hops(exchange, 5, 1024, 8);
    int64_t bytes = 0;
    std::set<int> peers;
    for (int64_t i = 0; i < hops.size(); ++i) {
      bytes += hops[i].bytes;
      peers.insert(hops[i].to);
    }
    CHECK(bytes == 1023 * 8);  // whatever the way
    CHECK(hops.size() == (exchange == Exchange::kDoubling ? 10 : 1023));
    CHECK(peers.size() == (exchange == Exchange::kDoubling ? 10
                           : exchange == Exchange::kRing   ? 1
                                                           : 1023));
  }
}

TEST_CASE("the exchange that takes the least time by hops, messages and bytes is chosen") {
  const NetworkCost cost{10e-6, 1e-6, 1e-9, 1e-9};
  CHECK(exchange_s(Exchange::kMesh, 8, 1000, cost) == doctest::Approx(10e-6 + 6e-6 + 7e-6));
  CHECK(exchange_s(Exchange::kRing, 8, 1000, cost) == doctest::Approx(70e-6 + 7e-6));
  CHECK(exchange_s(Exchange::kDoubling, 8, 1000, cost) == doctest::Approx(30e-6 + 7e-6));
  CHECK(exchange_s(Exchange::kMesh, 1, 1000, cost) == 0);
  ExchangeRule rule;
  rule.cost = cost;
  CHECK(rule.choice(2, 1000) == Exchange::kMesh);  // all are alike: one message
  CHECK(rule.choice(8, 1000) == Exchange::kMesh);
  CHECK(rule.choice(128, 1000) == Exchange::kDoubling);
  // 64 messages for 127 parts; but then bytes are cheaper to the next host than to any.
  rule.cost->next_byte_s = 0.5e-9;
  CHECK(rule.choice(8, 4 << 20) == Exchange::kRing);
  CHECK(rule.choice(8, 1000) == Exchange::kMesh);
  rule.pinned = Exchange::kDoubling;
  CHECK(rule.choice(8, 4 << 20) == Exchange::kDoubling);
}

TEST_CASE("an exchange is priced by the messages that are sent: long parts go in long pieces") {
  constexpr int64_t kPart = 200 << 10;
  const ExchangeRule rule;
  const NetworkCost cost = rule.network();
  const auto us = [&](Exchange exchange, bool takes_any_memory) {
    return 1e6 * exchange_s(exchange, 16, kPart, cost, takes_any_memory);
  };
  CHECK(us(Exchange::kMesh, true) == doctest::Approx(5.4 + 14 * 3.8));  // a piece to each
  CHECK(us(Exchange::kRing, true) == doctest::Approx(15 * 5.4));
  CHECK(us(Exchange::kDoubling, true) ==
        doctest::Approx(4 * 5.4 + 22 * 3.8));  // of 1, 2, 4, 8 parts
  CHECK(rule.choice(16, kPart) == Exchange::kMesh);
  // Registered memory goes in pieces of a message.
  CHECK(us(Exchange::kMesh, false) == doctest::Approx(5.4 + 29 * 3.8));
  ExchangeRule registered;
  registered.takes_any_memory = false;
  CHECK(registered.choice(16, kPart) == Exchange::kDoubling);
  CHECK(message_bytes(kMessageBytes) == kMessageBytes);
  CHECK(message_bytes(kMessageBytes + 1) == net::kMostPieceBytes);
  CHECK(message_bytes(net::kMostPieceBytes + 1) == net::kPieceBytes);
  CHECK(message_bytes(net::kMostPieceBytes + 1, false) == kMessageBytes);
}

TEST_CASE("the cost of a network is written and read alike: what is none is said") {
  const NetworkCost cost{1.5e-5, 1e-6, 1e-10, 8e-11};
  CHECK(text_of(cost) == "1.5e-05,1e-06,1e-10,8e-11");
  const NetworkCost third{1e-5 / 3, 1e-6, 1e-10 / 3, 0};
  CHECK(network_cost_of(text_of(third)).hop_s == third.hop_s);  // to the last bit
  CHECK(network_cost_of(text_of(third)).byte_s == third.byte_s);
  for (const char* text :
       {"", "1,2,3", "1,2,3,4,5", "1,2,3,x", "1,2,3,-4", "1;2;3;4", "1,2,nan,4", "1,2,inf,4"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(network_cost_of(text),
                         (std::string("'") + text +
                          "': expected four times in seconds, for a hop, a message, a byte and a "
                          "byte to the next host, "
                          "such as 6e-06,2e-06,8e-10,8e-10")
                             .c_str(),
                         std::invalid_argument);
  }
}

TEST_CASE("all exchanges leave the same: gathered parts, sums to the bit of one host's, barriers") {
  struct Grid {
    int hosts, per_host;
  };
  for (const Grid grid : {Grid{2, 1}, Grid{3, 1}, Grid{4, 1}, Grid{5, 1}, Grid{8, 1}, Grid{3, 2}}) {
    const int size = grid.hosts * grid.per_host;
    std::vector<float> one_host;
    run_ranks(size, [&](Communicator& comm) {
      const std::vector<float> sum = sum_of(comm, 4096);
      if (comm.rank() == 0) one_host = sum;
    });
    for (const Exchange exchange : kExchanges) {
      HostsOptions options = pinned(exchange);
      options.faults.delay_polls = 3;
      options.afterwards = [](FakeNetwork& network) { CHECK(network.unexpected() == 0); };
      run_hosts(
          grid.hosts, grid.per_host,
          [&](Communicator& comm) {
            for (const int64_t count : {0, 1, 5000, 100001}) {
              std::vector<int32_t> own(static_cast<size_t>(count)), all(size_t(count * size));
              std::iota(own.begin(), own.end(), comm.rank() * 1000000);
              comm.all_gather(own.data(), all.data(), count, DType::kI32, "g")->wait();
              int64_t wrong = 0;
              for (int64_t i = 0; i < count * size; ++i)
                wrong += all[size_t(i)] != i / count * 1000000 + i % count;
              CHECK(wrong == 0);
            }
            CHECK(sum_of(comm, 4096) == one_host);
            comm.barrier("b")->wait();
          },
          options);
    }
  }
}

// In a ring and by doubling most hosts wait for one that has called and waits itself.
TEST_CASE("who does not call is named, also where others hand on what it has") {
  const std::function<void(Communicator&)> barrier = [](Communicator& comm) {
    comm.barrier("b")->wait();
  };
  // Of a part of several messages the later ones wait for others too.
  const std::function<void(Communicator&)> gather = [](Communicator& comm) {
    constexpr int64_t kBytes = 600 << 10;
    std::vector<std::byte> own(kBytes), all(size_t(kBytes * comm.size()));
    comm.all_gather(own.data(), all.data(), kBytes, DType::kU8, "g")->wait();
  };
  const std::function<void(Communicator&)> sum = [](Communicator& comm) { sum_of(comm, 1000); };
  for (const Exchange exchange : {Exchange::kRing, Exchange::kDoubling}) {
    for (const auto& call : {barrier, gather}) check_absent_is_named(5, 1, exchange, call);
    // Those whose own rails bring all wait for members of their host, who wait for others.
    for (const auto& call : {gather, sum}) check_absent_is_named(4, 2, exchange, call);
  }
}

TEST_CASE("calls that do not match end on all hosts, also where others hand on what it has") {
  for (const Exchange exchange : kExchanges) {
    std::vector<std::string> errors(5);
    std::atomic<int> ended{0};
    run_hosts(
        5, 1,
        [&](Communicator& comm) {
          std::vector<float> own(8), all(40);
          try {
            comm.all_gather(own.data(), all.data(), comm.rank() == 3 ? 7 : 8, DType::kF32, "g")
                ->wait();
          } catch (const CommError& e) {
            errors[size_t(comm.rank())] = e.what();
          }
          ended.fetch_add(1);
          while (ended.load() < 5) std::this_thread::yield();  // nobody leaves before
        },
        pinned(exchange));
    for (const std::string& error : errors) {
      CAPTURE(name_of(exchange));
      CAPTURE(error);
      CHECK(error.find("rank 3: all_gather #1 'g' of 7 fp32") != std::string::npos);
      CHECK(error.find(" does not match ") != std::string::npos);
    }
  }
}
