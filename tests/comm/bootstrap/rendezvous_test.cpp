#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/participant.h"
#include "comm/fabric_ranks.h"
#include "comm/processes.h"
#include "smp/rendezvous/handshake/acceptor.h"
#include "smp/rendezvous/sockets/tcp_socket.h"

using namespace smp;
using namespace smp::bootstrap;
using namespace smp::comm;
using namespace smp::jobs;
using handshake::Handshake;
using system::FileDescriptor;
using namespace smp::testing;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr size_t kMany = 3 * handshake::Acceptor::kMostPending;

Participant participant(int rank) { return {{rank, 2, "job", "key"}, milliseconds(60000), ""}; }

// What the rank that connects hears.
std::string heard(const Participant& guest, uint64_t guest_protocol) {
  const Participant host = participant(0);
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const FileDescriptor here(ends[0]), there(ends[1]);
  std::thread answering([&] { Handshake(host, 7).respond(there, host.deadline); });
  std::string said = "good";
  Handshake handshake(guest, guest_protocol);
  try {
    const bool is_answered = guest.initiate(handshake, here, 0);
    CHECK(is_answered);
  } catch (const CommError& e) {
    said = text_of(e);
  }
  answering.join();
  return said;
}

}  // namespace

TEST_CASE("a rank of another version, size or key is told so") {
  CHECK(heard(participant(1), 7) == "good");
  CHECK(heard(participant(1), 8) ==
        "mismatch 0: rank 1: rank 0 of job 'job' runs another version of smp");
  Participant large = participant(1);
  large.size = 3;
  CHECK(heard(large, 7) == "mismatch 0: rank 1: this job has 3 ranks, but rank 0 was told 2");
  Participant stranger = participant(1);
  stranger.job_key = "another key";
  CHECK(heard(stranger, 7) == "mismatch 1: rank 1: rank 0 of job 'job' has another job key");
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
    if (FileDescriptor socket = sockets::try_connect_tcp("127.0.0.1", port.number(), limit))
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
