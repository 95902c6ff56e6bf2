#include "bootstrap/acceptor.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/signed_message.h"
#include "bootstrap/tcp_socket.h"
#include "comm/fabric_ranks.h"
#include "comm/processes.h"

using namespace smp;
using namespace smp::bootstrap;
using namespace smp::jobs;
using system::FileDescriptor;
using namespace smp::testing;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr uint64_t kProtocol = 7;
constexpr size_t kMany = 3 * Acceptor::kMostPending;
constexpr milliseconds kInTime{5000};  // six strangers one after the other take 12 s

Participant participant(int rank) { return {rank, 8, "job", "key", kNever, ""}; }

// One that listens at this port or Unix socket, and how to reach it.
struct Endpoint {
  FileDescriptor listener;
  std::function<FileDescriptor()> connect;
};

Endpoint unix_endpoint() {
  const std::string name = "smp-test/" + fresh_job_id();
  return {listen_at(name), [name] { return try_connect(name); }};
}

Endpoint tcp_endpoint() {
  FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  const int port = local_port_of(listener);
  return {std::move(listener),
          [port] { return try_connect_tcp("127.0.0.1", port, steady_clock::now() + kNever); }};
}

void come_in(const Endpoint& endpoint, int rank) {
  const Participant self = participant(rank);
  const FileDescriptor socket = endpoint.connect();
  Handshake handshake(self, kProtocol);
  REQUIRE(handshake.initiate(socket, 0));
  send_signed(socket, "card", handshake, fmt::format("of rank {}", rank));
}

}  // namespace

TEST_CASE("strangers who say nothing, or half of it, hold up no rank that comes") {
  for (const bool is_tcp : {false, true}) {
    CAPTURE(is_tcp);
    const Endpoint endpoint = is_tcp ? tcp_endpoint() : unix_endpoint();
    const Participant self = participant(0);
    Acceptor acceptor(self, kProtocol, "card");
    std::vector<FileDescriptor> strangers;
    for (int i = 0; i < 6; ++i) strangers.push_back(endpoint.connect());
    const std::string half(Handshake::kHelloBytes / 2, 'x');
    send_all(strangers[4], half.data(), half.size());
    strangers[5] = FileDescriptor();  // has gone
    const auto begin = steady_clock::now();
    std::vector<std::thread> ranks;
    for (int rank = 1; rank < 8; ++rank) ranks.emplace_back([&, rank] { come_in(endpoint, rank); });
    std::set<int> here;
    while (here.size() < 7) {
      const auto guest = acceptor.next(endpoint.listener, begin + kNever);
      REQUIRE(guest);
      CHECK(guest->message == fmt::format("of rank {}", guest->handshake.peer_rank()));
      here.insert(guest->handshake.peer_rank());
    }
    CHECK(steady_clock::now() - begin < kInTime);
    for (std::thread& rank : ranks) rank.join();
    CHECK_FALSE(acceptor.next(endpoint.listener, begin + kHandshakeLimit + milliseconds(500)));
    const std::string origin = is_tcp ? "127.0.0.1" : fmt::format("user {}", geteuid());
    CHECK(acceptor.rejected().text() ==
          fmt::format("; 6 connections were rejected (6 from {})", origin));
    for (int i = 0; i < 5; ++i) CHECK(closed_by_peer(strangers[size_t(i)]));
  }
}

TEST_CASE("the oldest of many strangers who say nothing makes room for a rank") {
  for (const bool is_tcp : {false, true}) {
    CAPTURE(is_tcp);
    const Endpoint endpoint = is_tcp ? tcp_endpoint() : unix_endpoint();
    const Participant self = participant(0);
    Acceptor acceptor(self, kProtocol, "card");
    std::vector<FileDescriptor> strangers;
    const auto begin = steady_clock::now();
    while (strangers.size() < 4 * Acceptor::kMostPending) {
      if (FileDescriptor stranger = endpoint.connect()) strangers.push_back(std::move(stranger));
      CHECK_FALSE(acceptor.next(endpoint.listener, steady_clock::now()));
    }
    std::thread rank([&] { come_in(endpoint, 3); });
    const auto guest = acceptor.next(endpoint.listener, begin + kNever);
    REQUIRE(guest);
    CHECK(guest->message == "of rank 3");
    rank.join();
    CHECK(closed_by_peer(strangers.front()));
    CHECK_FALSE(closed_by_peer(strangers.back()));
    CHECK(steady_clock::now() - begin < kInTime);
  }
}

TEST_CASE("over libfabric: ranks meet though many strangers connect to rank 0 and say nothing") {
  const HeldPort port;
  const std::string job_id = fresh_job_id();
  const auto begin_rank = [&](int rank) {
    return Child([=, options = options_of(rank, 2, 1, job_id, port.number())] {
      const auto world = connect_fabric(options);
      world->barrier("here")->wait();
      return std::string("good");
    });
  };
  Child first = begin_rank(0);
  std::vector<FileDescriptor> strangers;
  const auto limit = steady_clock::now() + milliseconds(20000);
  while (strangers.size() < kMany && steady_clock::now() < limit) {
    if (FileDescriptor socket = try_connect_tcp("127.0.0.1", port.number(), limit))
      strangers.push_back(std::move(socket));
    else
      std::this_thread::sleep_for(milliseconds(5));
  }
  REQUIRE(strangers.size() == kMany);
  const auto begin = steady_clock::now();
  Child second = begin_rank(1);
  CHECK(second.join().said == "good");
  CHECK(first.join().said == "good");
  CHECK(steady_clock::now() - begin <
        milliseconds(4000));  // one after the other they would take minutes
}
