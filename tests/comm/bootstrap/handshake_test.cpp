#include "bootstrap/handshake.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <string>
#include <thread>

#include "comm/processes.h"

using namespace smp;
using namespace smp::bootstrap;
using namespace smp::comm;
using system::FileDescriptor;
using namespace smp::testing;
using std::chrono::milliseconds;

namespace {

Participant participant(int rank) { return {rank, 2, "job", "key", milliseconds(60000), ""}; }

// What the rank that connects hears, and whether the other one goes on.
struct Shaken {
  std::string said = "good";
  bool goes_on = false;
};

Shaken shake(const Participant& guest, uint64_t guest_protocol, const Participant& host,
             uint64_t host_protocol) {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const FileDescriptor here(ends[0]), there(ends[1]);
  Shaken shaken;
  std::thread answering(
      [&] { shaken.goes_on = Handshake(host, host_protocol).respond(there, host.deadline); });
  try {
    const bool is_greeted = Handshake(guest, guest_protocol).initiate(here, host.rank);
    CHECK(is_greeted);
  } catch (const CommError& e) {
    shaken.said = text_of(e);
  }
  answering.join();
  return shaken;
}

}  // namespace

TEST_CASE("a rank of another version, size or key is told so") {
  const Shaken good = shake(participant(1), 7, participant(0), 7);
  CHECK(good.said == "good");
  CHECK(good.goes_on);

  const Shaken version = shake(participant(1), 8, participant(0), 7);
  CHECK(version.said == "mismatch 0: rank 1: rank 0 of job 'job' runs another version of smp");
  CHECK_FALSE(version.goes_on);

  Participant large = participant(1);
  large.size = 3;
  CHECK(shake(large, 7, participant(0), 7).said ==
        "mismatch 0: rank 1: this job has 3 ranks, but rank 0 was told 2");

  Participant stranger = participant(1);
  stranger.job_key = "another key";
  CHECK(shake(stranger, 7, participant(0), 7).said ==
        "mismatch 1: rank 1: rank 0 of job 'job' has another job key");
}

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
