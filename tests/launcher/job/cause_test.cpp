#include "smp/launcher/job/cause.h"

#include <doctest/doctest.h>
#include <signal.h>

#include "supervision/peer_failure.h"

using namespace smp;
using namespace smp::job;
using namespace smp::process;
using namespace smp::supervision;

namespace {

// A job in the making: ranks end in the order of the calls.
class Ranks {
 public:
  explicit Ranks(int count) : states_(static_cast<size_t>(count)) {}
  Ranks& exits(int rank, int code) { return ends(rank, {code, 0, false}); }
  Ranks& dies(int rank, int signal) { return ends(rank, {0, signal, false}); }
  Ranks& blames(int rank, int culprit, RankErrorKind kind = RankErrorKind::kPeerLost) {
    states_[rank].error = RankError{rank, kind, culprit, "step 1", "text"};
    return exits(rank, 1);
  }
  Ranks& loses_peer(int rank, int signal = 0) {
    states_[rank].reports_peer_failure = true;
    return signal != 0 ? dies(rank, signal) : exits(rank, 1);
  }
  Ranks& is_stopped(int rank) {
    states_[rank].stopped = true;
    return *this;
  }
  Ranks& says(int rank, const std::string& message) {
    states_[rank].error = RankError{rank, RankErrorKind::kOwn, rank, "", message};
    return *this;
  }
  const RankState& state(int rank) const { return states_[rank]; }
  std::optional<Cause> cause() const { return find_cause(states_); }
  int rank_to_blame() const { return cause()->rank; }
  int64_t worth_waiting_ms() const { return cause()->worth_waiting.count(); }

 private:
  Ranks& ends(int rank, const ProcessEnd& end) {
    states_[rank].ended = true;
    states_[rank].end = end;
    states_[rank].order = ended_++;
    return *this;
  }
  std::vector<RankState> states_;
  int ended_ = 0;
};

}  // namespace

TEST_CASE("no failure, no cause") {
  CHECK(!Ranks(3).cause());
  CHECK(!Ranks(3).exits(1, 0).cause());
}

TEST_CASE("a crash explains itself at once") {
  CHECK(Ranks(3).dies(2, SIGSEGV).rank_to_blame() == 2);
  CHECK(Ranks(3).dies(2, SIGSEGV).worth_waiting_ms() == 0);
  CHECK(Ranks(3).dies(2, SIGKILL).worth_waiting_ms() == 0);
}

TEST_CASE("an exit code waits a moment, for a crash that it may follow from") {
  CHECK(Ranks(3).exits(0, 1).worth_waiting_ms() == 50);
  CHECK(Ranks(3).exits(0, 1).dies(2, SIGSEGV).rank_to_blame() == 2);
  CHECK(Ranks(3).dies(0, SIGABRT).dies(2, SIGSEGV).rank_to_blame() == 2);
  CHECK(Ranks(3).exits(1, 3).exits(0, 1).rank_to_blame() == 1);
  CHECK(Ranks(3).exits(1, 3).dies(0, SIGABRT).rank_to_blame() == 1);
}

TEST_CASE("a rank that tells of a lost peer waits for one that failed by itself") {
  CHECK(Ranks(3).loses_peer(0).rank_to_blame() == 0);
  CHECK(Ranks(3).loses_peer(0).worth_waiting_ms() == 2000);
  CHECK(Ranks(3).loses_peer(0).loses_peer(1).rank_to_blame() == 0);
  CHECK(Ranks(3).loses_peer(0).loses_peer(1).worth_waiting_ms() == 2000);
  CHECK(Ranks(3).loses_peer(0).exits(2, 3).rank_to_blame() == 2);
  CHECK(Ranks(3).loses_peer(0).exits(2, 3).worth_waiting_ms() == 50);
  CHECK(Ranks(3).loses_peer(0, SIGABRT).exits(2, 3).rank_to_blame() == 2);
  CHECK(Ranks(3).loses_peer(0).dies(2, SIGSEGV).worth_waiting_ms() == 0);
  CHECK(Ranks(3).loses_peer(0, SIGSEGV).exits(2, 3).rank_to_blame() == 0);  // a crash is its own
  CHECK(Ranks(4).loses_peer(0).blames(1, 0).blames(2, 0).exits(3, 1).rank_to_blame() == 0);
  CHECK(Ranks(4).loses_peer(0).blames(1, 0).blames(2, 0).worth_waiting_ms() == 0);
}

TEST_CASE("a rank whose error file tells of a lost peer waits too") {
  Ranks ranks(3);
  ranks.says(0, "Connection closed by peer").loses_peer(0);
  CHECK(ranks.worth_waiting_ms() == 2000);
  CHECK(ranks.says(2, "bad batch").exits(2, 1).rank_to_blame() == 2);
  CHECK(ranks.worth_waiting_ms() == 0);
}

TEST_CASE("who has failed of a lost peer, as far as its words tell") {
  CHECK(failed_because_of_peer(Ranks(1).loses_peer(0).state(0)));
  CHECK(failed_because_of_peer(Ranks(1).loses_peer(0, SIGABRT).state(0)));
  CHECK(!failed_because_of_peer(Ranks(1).loses_peer(0, SIGSEGV).state(0)));
  CHECK(!failed_because_of_peer(Ranks(1).exits(0, 1).state(0)));
}

TEST_CASE("what a program logs before it fails is not why it failed") {
  const std::string retried = "urllib3: Connection reset by peer: trying again";
  const std::string traceback = "Traceback (most recent call last):";
  CHECK(!reports_peer_failure({retried, traceback, "ValueError: bad batch"}));
  CHECK(!reports_peer_failure(
      {traceback, "ValueError: bad batch", "",
       "During handling of the above exception, another exception occurred:", "", traceback,
       "RuntimeError: Connection closed by peer"}));
  CHECK(reports_peer_failure({traceback, "RuntimeError: Connection closed by peer", "",
                              "During handling of the above exception, another exception occurred:",
                              "", traceback, "ValueError: no result"}));
  std::vector<std::string> lines = {retried};
  for (int i = 0; i < 10; ++i) lines.push_back("step");
  CHECK(!reports_peer_failure(lines));
  lines = {"what(): ncclRemoteError"};
  for (int i = 0; i < 20; ++i) lines.push_back("frame #1: c10d::abort()");
  CHECK(reports_peer_failure(lines));
}

TEST_CASE("what NCCL, gloo and torch say of a lost peer") {
  for (const char* line :
       {"RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "torch.distributed.DistNetworkError: Connection was likely closed. Did the remote server "
        "shutdown or crash?",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process "
        "exiting prematurely.",
        "smp: step 7: lost its connection to rank 2"})
    CHECK(reports_peer_failure({"Traceback:", line, ""}));
  CHECK(!reports_peer_failure({"RuntimeError: bad batch at step 5", "the peer is well"}));
  CHECK(!reports_peer_failure({}));
}

TEST_CASE("a rank that blames another is a consequence") {
  CHECK(Ranks(3).blames(0, 2).rank_to_blame() == 2);
  CHECK(Ranks(3).blames(0, 2).cause()->alive);
  CHECK(Ranks(3).blames(0, 2).worth_waiting_ms() == 300);
  // Rank 2 has told it to end, and will end itself, with an error of its own.
  CHECK(Ranks(3).blames(0, 2, RankErrorKind::kAborted).worth_waiting_ms() == 2000);
  CHECK(Ranks(3).blames(0, 2).exits(2, 3).rank_to_blame() == 2);
  CHECK(Ranks(3).blames(0, 2).exits(2, 3).worth_waiting_ms() == 0);
  CHECK(Ranks(3).blames(0, 2).exits(2, 3).cause()->witness == 2);
  CHECK(!Ranks(3).blames(0, 2).exits(2, 0).cause()->alive);
}

TEST_CASE("blame is followed from rank to rank") {
  const auto cause =
      Ranks(4).blames(0, 1, RankErrorKind::kTimeout).blames(1, 3, RankErrorKind::kTimeout).cause();
  CHECK(cause->rank == 3);
  CHECK(cause->witness == 1);
  CHECK(cause->alive);
}

TEST_CASE("ranks that blame each other: the first of them") {
  CHECK(Ranks(2).blames(1, 0).blames(0, 1).rank_to_blame() == 1);
}

TEST_CASE("a stopped rank is the cause without waiting") {
  const Ranks ranks = Ranks(4).is_stopped(2).blames(0, 3).blames(1, 2);
  CHECK(ranks.rank_to_blame() == 2);
  CHECK(ranks.worth_waiting_ms() == 0);
  CHECK(ranks.cause()->stopped);
}

TEST_CASE("most of the blame decides between ranks that are alive") {
  CHECK(Ranks(6).blames(0, 4).blames(1, 5).blames(2, 5).rank_to_blame() == 5);
}
