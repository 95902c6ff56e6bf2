#include "smp/rendezvous/sockets/stream_socket.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <thread>

using namespace smp;
using namespace smp::sockets;
using system::FileDescriptor;

TEST_CASE("long messages go whole through a socket that takes little at a time") {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const FileDescriptor here(ends[0]), there(ends[1]);
  const int small = 4096;
  setsockopt(here.number(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
  std::string sent(3 << 20, 'x');
  for (size_t i = 0; i < sent.size(); i += 1000) sent[i] = char('a' + i / 1000 % 26);
  std::string got(sent.size(), '\0');
  bool whole = false;
  std::thread receiving([&] {
    whole = receive_all(there, got.data(), got.size(),
                        std::chrono::steady_clock::now() + std::chrono::seconds(60));
  });
  CHECK(send_all(here, sent.data(), sent.size()));
  receiving.join();
  CHECK(whole);
  CHECK(got == sent);
}
