#include "jobs/host_watch.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/times.h"
#include "groups/rank_context.h"
#include "segment/shared_job.h"
#include "smp/rendezvous/wire/payload.h"

// What the watch of one rank makes of the words of others, which the test says in their place, or
// does not: so it is the same however long they take.
using namespace smp;
using namespace smp::comm;
using namespace smp::testing;
using jobs::HostWatch;
using segment::Failure;
using segment::SharedJob;
using system::FileDescriptor;

namespace {

constexpr int kSize = 3;
enum Word : uint32_t { kFailure = 1, kLeft = 2 };

const Failure kFound{CommError::Kind::kMismatch, 1, 1, "rank 0: a does not match rank 1: b"};

std::pair<FileDescriptor, FileDescriptor> connected() {
  int ends[2] = {-1, -1};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// A rank with memory of its own.
struct Rank {
  explicit Rank(int rank) : job(new_job()), context(job, rank, kNever) {}
  static std::shared_ptr<SharedJob> new_job() {
    auto mapping = segment::Mapping::anonymous(SharedJob::bytes(kSize, kSize));
    SharedJob::prepare(mapping, kSize, kSize);
    return std::make_shared<SharedJob>(std::move(mapping), kSize);
  }
  // `sockets`: by rank for rank 0, else to rank 0.
  void watch(std::vector<FileDescriptor> sockets) {
    std::vector<bootstrap::PeerAddress> peers(kSize);
    for (int rank = 0; rank < kSize; ++rank) peers[size_t(rank)].rank = rank;
    its_watch = std::make_unique<HostWatch>(context, peers, std::move(sockets), kNever);
  }
  std::string failure() const {
    const auto found = job->read(job->failure());
    return found ? found->text : "none";
  }

  std::shared_ptr<SharedJob> job;
  groups::RankContext context;
  std::unique_ptr<HostWatch> its_watch;
};

void say(const FileDescriptor& socket, Word word, const std::string& letter) {
  const uint32_t head[2] = {word, uint32_t(letter.size())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof(head));
  bytes += letter;
  REQUIRE(send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size()));
}

std::string letter_of_leaving(int rank) {
  return wire::PayloadWriter().number(uint64_t(rank)).bytes();
}

std::string letter_of(const Failure& failure) {
  wire::PayloadWriter letter;
  for (const uint64_t number :
       {uint64_t{0}, uint64_t(failure.kind), uint64_t(failure.culprit), uint64_t(failure.finder)})
    letter.number(number);
  letter.text(failure.text);
  return letter.bytes();
}

template <class Condition>
bool comes(const Condition& condition) {
  const auto limit = std::chrono::steady_clock::now() + kSoon;
  while (!condition() && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

struct Listener final : segment::RemoteHosts {
  std::vector<std::string> heard;
  std::string place_of(int) const override { return ""; }
  void failed(const segment::FailureRecord&, const Failure& failure) override {
    heard.push_back(failure.text);
  }
};

}  // namespace

TEST_CASE("what rank 0 hands on after it has said that it leaves is heard") {
  Rank last(2);
  auto [hub, own] = connected();
  std::vector<FileDescriptor> sockets;
  sockets.push_back(std::move(own));
  last.watch(std::move(sockets));
  say(hub, kLeft, letter_of_leaving(0));
  REQUIRE(comes([&] { return last.job->board(0).gone.load() != 0; }));
  say(hub, kFailure, letter_of(kFound));
  CHECK(comes([&] { return last.failure() != "none"; }));
  CHECK(last.failure() == kFound.text);
}

// It may be no more than what the first has done to the ranks here, and be the first elsewhere.
TEST_CASE("of two failures that ranks of a host have found other hosts hear of the first alone") {
  Listener listener;
  const auto job = Rank::new_job();
  job->set_remote_hosts(&listener);
  job->fail(job->failure(), kFound);
  job->fail(job->failure(), {CommError::Kind::kTimeout, 1, 0, "rank 1 has not made this call"});
  CHECK(listener.heard == std::vector{kFound.text});
  CHECK(job->read(job->failure())->text == kFound.text);
}

TEST_CASE("a failure is told though a rank died before while it wrote one") {
  Listener listener;
  const auto job = Rank::new_job();
  job->set_remote_hosts(&listener);
  job->failure().state.store(segment::FailureRecord::being_written(1));
  job->fail(job->failure(), kFound);
  CHECK(listener.heard == std::vector{kFound.text});
}

TEST_CASE("rank 0, gone for what a rank of its host has found, has told it to other hosts") {
  struct Case {
    bool another_group_has_failed = false, has_died_writing = false;
    std::string told = kFound.text;
  };
  for (const Case& c :
       {Case{}, Case{true},
        Case{false, true, "rank 1 ended or was stopped while reporting a failure"}}) {
    CAPTURE(c.told);
    CAPTURE(c.another_group_has_failed);
    Rank hub(0), last(2);
    auto [to_mate, mate] = connected();  // who says nothing: it has no CPU
    auto [to_last, from_last] = connected();
    std::vector<FileDescriptor> sockets(1), own;
    sockets.push_back(std::move(to_mate));
    sockets.push_back(std::move(to_last));
    own.push_back(std::move(from_last));
    last.watch(std::move(own));
    hub.watch(std::move(sockets));
    const groups::RecordPtr group = hub.context.group_failures.open(5);
    if (c.another_group_has_failed)
      hub.job->fail(*group, {CommError::Kind::kAborted, 0, 0, "enough"});
    if (c.has_died_writing)
      hub.job->failure().state.store(segment::FailureRecord::being_written(1));
    else
      hub.job->write(hub.job->failure(), kFound, 1);  // as the mate in their memory
    hub.its_watch.reset();
    CHECK(comes([&] { return last.failure() != "none"; }));
    CHECK(last.failure() == c.told);
  }
}
