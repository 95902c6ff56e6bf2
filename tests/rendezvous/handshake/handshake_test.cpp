#include "smp/rendezvous/handshake/handshake.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

#include "smp/rendezvous/handshake/signed_message.h"

using namespace smp;
using namespace smp::handshake;
using system::FileDescriptor;

namespace {

Member member(int rank) { return {rank, 2, "job", "key"}; }

sockets::Deadline in_a_minute() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

struct Ends {
  Ends() {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    here = FileDescriptor(ends[0]);
    there = FileDescriptor(ends[1]);
  }
  FileDescriptor here, there;
};

// What the initiator finds, and whether the responder goes on.
struct Shaken {
  std::optional<HandshakeError> error;
  bool goes_on = false;
};

Shaken shake(const Member& initiator, uint64_t protocol, const Member& responder,
             uint64_t responders_protocol) {
  const Ends ends;
  Shaken shaken;
  std::thread responding([&] {
    shaken.goes_on = Handshake(responder, responders_protocol).respond(ends.there, in_a_minute());
  });
  try {
    const bool is_answered =
        Handshake(initiator, protocol).initiate(ends.here, responder.rank, in_a_minute());
    CHECK(is_answered);
  } catch (const HandshakeError& error) {
    shaken.error = error;
  }
  responding.join();
  return shaken;
}

// Two ends after their handshake, and what the receiver takes for a message of kind "greeting".
struct Pair {
  Pair() : a(a_, 7), b(b_, 7) {
    std::thread responding([&] { b.respond(ends.there, in_a_minute()); });
    CHECK(a.initiate(ends.here, 0, in_a_minute()));
    responding.join();
  }
  std::optional<std::string> received() {
    return receive_signed(ends.there, "greeting", b, in_a_minute());
  }
  const Member a_ = member(1), b_ = member(0);
  Ends ends;
  Handshake a, b;
};

}  // namespace

TEST_CASE("a member of another version, size or key is told so") {
  using Reason = HandshakeError::Reason;
  const Shaken good = shake(member(1), 7, member(0), 7);
  CHECK_FALSE(good.error);
  CHECK(good.goes_on);

  const Shaken version = shake(member(1), 8, member(0), 7);
  REQUIRE(version.error);
  CHECK(version.error->reason == Reason::kVersion);
  CHECK_FALSE(version.goes_on);

  Member large = member(1);
  large.size = 3;
  const Shaken size = shake(large, 7, member(0), 7);
  REQUIRE(size.error);
  CHECK(size.error->reason == Reason::kSize);
  CHECK(size.error->peer_size == 2);

  Member stranger = member(1);
  stranger.job_key = "another key";
  const Shaken key = shake(stranger, 7, member(0), 7);
  REQUIRE(key.error);
  CHECK(key.error->reason == Reason::kKey);
  CHECK(std::string(key.error->what()) == "the other end has another job key");

  Member other_job = member(1);
  other_job.job_id = "job 2";
  CHECK(shake(other_job, 7, member(0), 7).error->reason == Reason::kKey);
}

TEST_CASE("a signed message is taken from its sender, for its purpose, in its connection alone") {
  Pair pair;
  CHECK(send_signed(pair.ends.here, "greeting", pair.a, "hello"));
  CHECK(pair.received() == "hello");

  Pair other;  // the same members and key, other nonces
  CHECK(send_signed(pair.ends.here, "greeting", other.a, "hello"));
  CHECK_FALSE(pair.received());

  Pair purpose;
  CHECK(send_signed(purpose.ends.here, "farewell", purpose.a, "hello"));
  CHECK_FALSE(purpose.received());

  Pair changed;
  Ends tap;
  CHECK(send_signed(tap.here, "greeting", changed.a, "hello"));
  std::string bytes(1024, '\0');
  bytes.resize(size_t(recv(tap.there.number(), bytes.data(), bytes.size(), 0)));
  bytes.back() = 'a';
  CHECK(sockets::send_all(changed.ends.here, bytes.data(), bytes.size()));
  CHECK_FALSE(changed.received());
}
