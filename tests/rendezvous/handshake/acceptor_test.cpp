#include "smp/rendezvous/handshake/acceptor.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "smp/plan/base/random_hex.h"
#include "smp/rendezvous/handshake/signed_message.h"
#include "smp/rendezvous/sockets/tcp_socket.h"
#include "smp/rendezvous/sockets/unix_socket.h"

using namespace smp;
using namespace smp::handshake;
using namespace smp::sockets;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using system::FileDescriptor;

namespace {

constexpr uint64_t kProtocol = 7;
constexpr milliseconds kNever{60'000};
constexpr milliseconds kInTime{5000};  // six strangers one after the other take 12 s

Member member(int rank) { return {rank, 8, "job", "key"}; }

// One that listens at this port or Unix socket, and how to reach it.
struct Endpoint {
  FileDescriptor listener;
  std::function<FileDescriptor()> connect;
};

Endpoint unix_endpoint() {
  const std::string name = "smp-test/" + random_hex(8);
  return {listen_unix(name), [name] { return try_connect_unix(name); }};
}

Endpoint tcp_endpoint() {
  FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  const int port = local_port_of(listener);
  return {std::move(listener),
          [port] { return try_connect_tcp("127.0.0.1", port, steady_clock::now() + kNever); }};
}

void come_in(const Endpoint& endpoint, int rank) {
  const Member self = member(rank);
  const FileDescriptor socket = endpoint.connect();
  Handshake handshake(self, kProtocol);
  REQUIRE(handshake.initiate(socket, 0, steady_clock::now() + kNever));
  send_signed(socket, "card", handshake, fmt::format("of rank {}", rank));
}

}  // namespace

TEST_CASE("strangers who say nothing, or half of it, hold up no member that comes") {
  for (const bool is_tcp : {false, true}) {
    CAPTURE(is_tcp);
    const Endpoint endpoint = is_tcp ? tcp_endpoint() : unix_endpoint();
    const Member self = member(0);
    Acceptor acceptor(self, kProtocol, "card", steady_clock::now() + kNever);
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

TEST_CASE("the oldest of many strangers who say nothing makes room for a member") {
  for (const bool is_tcp : {false, true}) {
    CAPTURE(is_tcp);
    const Endpoint endpoint = is_tcp ? tcp_endpoint() : unix_endpoint();
    const Member self = member(0);
    Acceptor acceptor(self, kProtocol, "card", steady_clock::now() + kNever);
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

TEST_CASE(
    "a full table of open files costs the oldest stranger its connection, not the member its") {
#ifdef __SANITIZE_ADDRESS__
  MESSAGE("skipped: UBSan itself opens a pipe to look at an object's type");
  return;
#endif
  const Endpoint endpoint = tcp_endpoint();
  const Member self = member(0);
  Acceptor acceptor(self, kProtocol, "card", steady_clock::now() + kNever);
  const FileDescriptor stranger = endpoint.connect();
  CHECK_FALSE(acceptor.next(endpoint.listener, steady_clock::now()));
  std::thread rank([&] { come_in(endpoint, 3); });
  CHECK(wait_readable(endpoint.listener, steady_clock::now() + kNever));  // it has its socket
  rlimit usual{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &usual) == 0);
  const int next = dup(0);
  close(next);
  const rlimit full{rlim_t(next), usual.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &full) == 0);
  const auto guest = acceptor.next(endpoint.listener, steady_clock::now() + kNever);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &usual) == 0);
  REQUIRE(guest);
  CHECK(guest->message == "of rank 3");
  rank.join();
  CHECK(closed_by_peer(stranger));
}

TEST_CASE("waiting for members ends when a descriptor that was named becomes readable") {
  const Endpoint endpoint = unix_endpoint();
  const Member self = member(0);
  Acceptor acceptor(self, kProtocol, "card", steady_clock::now() + kNever);
  const FileDescriptor event(eventfd(1, EFD_CLOEXEC));
  const auto begin = steady_clock::now();
  CHECK_FALSE(acceptor.next(endpoint.listener, begin + kNever, {event.number()}));
  CHECK(steady_clock::now() - begin < kNever);
}
