#include "smp/launcher/reach/rendezvous.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "held_port.h"
#include "scratch_folder.h"
#include "smp/launcher/process/file_limit.h"
#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::process;
using namespace smp::reach;
using namespace smp::system;
using std::chrono::milliseconds;

namespace {

const RendezvousEndpoint kHere{"127.0.0.1", 0};
const std::string kKey = "0123456789abcdef";

std::string why_not_joined(const RendezvousEndpoint& place, const std::string& key,
                           const RendezvousNode& node, milliseconds time = milliseconds(60'000)) {
  try {
    join_rendezvous(place, key, node, time);
    return "joined";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

FileDescriptor connected_to(int port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(socket.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

}  // namespace

TEST_CASE("hosts that know the key meet, in their order, whatever strangers do") {
  Rendezvous rendezvous(kHere, kKey);
  const RendezvousEndpoint place{"localhost", rendezvous.port()};
  CHECK(rendezvous.address() == "127.0.0.1");
  std::vector<FileDescriptor> peers;
  for (int i = 0; i < 200; ++i) {
    peers.push_back(connected_to(rendezvous.port()));
    const std::string text = i % 3 == 0 ? "" : i % 3 == 1 ? "GET / HTTP/1.0\r\n\r\n" : "SMPHOST2";
    CHECK(write(peers.back().number(), text.data(), text.size()) ==
          static_cast<ssize_t>(text.size()));
  }
  const std::string at = "localhost:" + std::to_string(rendezvous.port());
  std::thread nodes([&] {
    CHECK(why_not_joined(place, "another key of 16", {1, 0, 4}) ==
          "host 0 at " + at + " has another key: all hosts need the same key");
    CHECK(why_not_joined(place, kKey, {1, 0, 5}) ==
          "host 0 at " + at +
              " was started for 4 hosts, but this one for 5: all hosts need the same number");
    CHECK(why_not_joined(place, kKey, {1, 8, 4}) ==
          "host 0 at " + at +
              " was started with another number of ranks per host than this one (8): all hosts "
              "need the same number");
    std::vector<FileDescriptor> channels;
    channels.push_back(join_rendezvous(place, kKey, {3, 0, 4}, milliseconds(60'000)));
    CHECK(why_not_joined(place, kKey, {3, 0, 4}) ==
          "host 0 at " + at +
              " already has a host with node rank 3: each host needs a node rank of its own");
    CHECK(why_not_joined(place, kKey, {0, 0, 4}) ==
          "host 0 at " + at +
              " already has a host with node rank 0: each host needs a node rank of its own");
    channels.push_back(join_rendezvous(place, kKey, {1, 0, 4}, milliseconds(60'000)));
    channels.push_back(join_rendezvous(place, kKey, {2, 0, 4}, milliseconds(60'000)));
    for (size_t i = 0; i < 3; ++i) {
      const std::string text = std::to_string(i);
      CHECK(write(channels[i].number(), text.data(), 1) == 1);
    }
  });
  CHECK(!rendezvous.gather(3, {0, 0, 4}, milliseconds(60'000), -1));
  nodes.join();
  const std::vector<JoinedNode> arrived = rendezvous.take();
  REQUIRE(arrived.size() == 3);
  std::string texts;
  for (const JoinedNode& one : arrived) {
    char byte = 0;
    while (read(one.channel.number(), &byte, 1) != 1) std::this_thread::yield();
    texts.push_back(byte);
  }
  CHECK(texts == "120");  // of hosts 1, 2, 3
}

TEST_CASE("a host meets the others though thousands of strangers are there and say nothing") {
  const RaisedFileLimit files;
  Rendezvous rendezvous(kHere, kKey);
  const RendezvousEndpoint place{"127.0.0.1", rendezvous.port()};
  std::vector<FileDescriptor> peers;
  std::thread crowd([&] {
    for (int i = 0; i < 3000; ++i) peers.push_back(connected_to(rendezvous.port()));
    const auto began = std::chrono::steady_clock::now();
    CHECK(why_not_joined(place, kKey, {1, 0, 2}) == "joined");
    // A rendezvous that gave 256 of them at a time 2 s each would take 24 s.
    CHECK(std::chrono::steady_clock::now() - began < milliseconds(2'500));
  });
  CHECK(!rendezvous.gather(1, {0, 0, 2}, milliseconds(60'000), -1));
  crowd.join();
}

TEST_CASE("nobody is listened to any more when the time is over") {
  const HeldPort held;
  const RendezvousEndpoint place{"127.0.0.1", held.number()};
  Rendezvous rendezvous(place, kKey);
  CHECK_THROWS_AS(rendezvous.gather(1, {0, 0, 2}, milliseconds(1), -1), RendezvousTimeout);
  CHECK(why_not_joined(place, kKey, {1, 0, 2}, milliseconds(1)).ends_with(": Connection refused"));
}

TEST_CASE("hosts with another key are counted where they were waited for") {
  Rendezvous rendezvous(kHere, kKey);
  const RendezvousEndpoint place{"127.0.0.1", rendezvous.port()};
  const std::string at = "127.0.0.1:" + std::to_string(rendezvous.port());
  std::thread node([&] {
    CHECK(why_not_joined(place, "another key of 16", {1, 0, 2}) ==
          "host 0 at " + at + " has another key: all hosts need the same key");
  });
  CHECK_THROWS_WITH_AS(rendezvous.gather(1, {0, 0, 2}, milliseconds(1'000), -1),
                       ("0 of 1 other hosts joined at " + at +
                        " within 1.0 s; 1 connection was rejected (1 from 127.0.0.1)")
                           .c_str(),
                       RendezvousTimeout);
  node.join();
}

TEST_CASE("a place that does not answer is tried no longer than was said") {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  socklen_t size = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(listener.number(), any, size) == 0);
  REQUIRE(listen(listener.number(), 0) == 0);
  REQUIRE(getsockname(listener.number(), any, &size) == 0);
  std::vector<FileDescriptor> queue;  // full, whoever comes then is not answered
  const timeval soon{0, 50'000};
  do {
    queue.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(queue.back().number(), SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
  } while (connect(queue.back().number(), any, size) == 0);
  CHECK(why_not_joined({"127.0.0.1", ntohs(address.sin_port)}, kKey, {1, 0, 2}, milliseconds(200))
            .ends_with(" within 200 ms: no answer"));
}

TEST_CASE("a rendezvous that no host joins, and one without a leader, say so") {
  Rendezvous rendezvous(kHere, kKey);
  const std::string at = "127.0.0.1:" + std::to_string(rendezvous.port());
  CHECK_THROWS_WITH_AS(rendezvous.gather(2, {0, 0, 3}, milliseconds(100), -1),
                       ("0 of 2 other hosts joined at " + at + " within 100 ms").c_str(),
                       std::runtime_error);
  int port = 0;
  { port = Rendezvous(kHere, kKey).port(); }
  CHECK(why_not_joined({"127.0.0.1", port}, kKey, {1, 0, 2}, milliseconds(500)) ==
        "host 0 was not reached at 127.0.0.1:" + std::to_string(port) +
            " within 500 ms: Connection refused");
  CHECK_THROWS_WITH_AS(
      Rendezvous({"192.0.2.1", 29400}, kKey),
      "cannot wait for the other hosts at 192.0.2.1:29400: this host does not have that address",
      ConfigError);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const FileDescriptor control(ends[0]), signal(ends[1]);
  CHECK(write(signal.number(), "\x02", 1) == 1);
  CHECK(rendezvous.gather(2, {0, 0, 3}, milliseconds(60'000), control.number()) == 2);
}

TEST_CASE("an endpoint and a key file are read strictly") {
  CHECK(parse_rendezvous_endpoint("--rendezvous", "h:1").host == "h");
  CHECK(parse_rendezvous_endpoint("--rendezvous", "[fe80::1]:29400").host == "fe80::1");
  CHECK(parse_rendezvous_endpoint("--rendezvous", "10.0.0.1:29400").port == 29400);
  for (const char* text : {"", "h", "h:", ":1", "h:0", "h:65536", "h:1x", "fe80::1:4", "[]:1"})
    CHECK_THROWS_WITH_AS(parse_rendezvous_endpoint("--rendezvous", text),
                         ("--rendezvous '" + std::string(text) +
                          "': expected ADDRESS:PORT of host 0, as in 10.0.0.1:29400")
                             .c_str(),
                         ConfigError);
  const ScratchFolder folder;
  const std::string path = folder / "key";
  std::ofstream(path) << "  " << kKey << "\n";
  chmod(path.c_str(), 0644);
  CHECK_THROWS_WITH_AS(
      read_key_file(path),
      ("key file '" + path + "' is readable by everybody: run chmod 600 " + path).c_str(),
      ConfigError);
  chmod(path.c_str(), 0600);
  CHECK(read_key_file(path) == kKey);
  std::ofstream(path) << "short\n";
  CHECK_THROWS_WITH_AS(read_key_file(path),
                       ("key file '" + path +
                        "' has 5 characters: expected 16 or more, as from openssl rand -hex 32")
                           .c_str(),
                       ConfigError);
}
