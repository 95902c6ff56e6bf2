#include "smp/rendezvous/sockets/tcp_socket.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>

#include "held_port.h"

using namespace smp;
using namespace smp::sockets;
using system::FileDescriptor;

namespace {

Deadline in_seconds(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

}  // namespace

TEST_CASE("a name of several addresses is reached at the one that listens") {
  const FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  const FileDescriptor socket =
      try_connect_tcp("localhost", local_port_of(listener), in_seconds(60));
  REQUIRE(socket);
  CHECK(wait_readable(listener, in_seconds(60)));
  const FileDescriptor accepted = accept_one(listener);
  CHECK(accepted);
  CHECK(remote_address_of(accepted) == "127.0.0.1");
  CHECK(local_address_of(socket) == "127.0.0.1");
}

TEST_CASE("nobody waits is not an error, and why a connection failed is told") {
  const FileDescriptor listener = listen_tcp("127.0.0.1", 0);
  CHECK_FALSE(accept_one(listener));
  const HeldPort held;
  int error = 0;
  CHECK_FALSE(try_connect_tcp("127.0.0.1", held.number(), in_seconds(60), &error));
  CHECK(error == ECONNREFUSED);
}

TEST_CASE("an address that cannot be used is named") {
  CHECK_THROWS_WITH_AS(listen_tcp("192.0.2.1", 29400),
                       "cannot listen at 192.0.2.1 port 29400: Cannot assign requested address",
                       std::system_error);
  std::string why;
  try {
    listen_tcp("no.such.name.invalid", 1);
  } catch (const std::runtime_error& failure) {
    why = failure.what();
  }
  CHECK(why.starts_with("cannot find the address of 'no.such.name.invalid': "));
}
