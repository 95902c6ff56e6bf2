#include "bootstrap/regroup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "smp/rendezvous/handshake/signed_message.h"
#include "smp/rendezvous/wire/payload.h"

namespace smp::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kProtocol = 0x31474552454d4d53;  // "SMMEREG1"
// The part of the whole time to wait for one rank to accept: several may not.
constexpr int kParts = 4;
constexpr milliseconds kLookEvery{200};
constexpr milliseconds kProbeFor{50};
constexpr milliseconds kRetryEvery{20};

// Of the job that these ranks make of another one.
std::string id_of(const Participant& old, const std::vector<int>& members) {
  const Mac mac =
      authenticate(old.job_key, fmt::format("{} again {}", old.job_id, fmt::join(members, " ")));
  uint64_t word;
  memcpy(&word, mac.data(), sizeof(word));
  return fmt::format("{}+{:016x}", old.job_id.substr(0, std::min<size_t>(40, old.job_id.find('+'))),
                     word);
}

}  // namespace

comm::Survivors Regroup::run(milliseconds limit) {
  self_.timeout = limit;
  const auto begin = steady_clock::now();
  const sockets::Deadline end = begin + limit;
  gone_.clear();
  for (int rank = 0; rank < self_.rank; ++rank) {
    const auto message = ask(rank, std::min(steady_clock::now() + limit / kParts, end), end);
    if (!message) continue;
    wire::PayloadReader reader(*message);
    if (reader.text() == "no")
      throw comm::CommError(comm::CommError::Kind::kTimeout, -1,
                            fmt::format("rank {}: {}", self_.rank, reader.text()));
    RendezvousAddress address;
    address.address = reader.text();
    address.port = int(reader.number());
    std::vector<int> members(reader.number());
    for (int& member : members) member = int(reader.number());
    return start_next_job(members, address);
  }
  return gather_ranks(end);
}

// The answer of `rank`, if it is the one that accepts the others.
std::optional<std::string> Regroup::ask(int rank, sockets::Deadline answer_by,
                                        sockets::Deadline end) {
  Participant self = self_;
  self.deadline = answer_by;
  for (;;) {
    ConnectAttempt attempt = attempt_connect(rank, answer_by);
    if (attempt.is_gone) gone_.insert(rank);
    if (!attempt.socket) return std::nullopt;
    handshake::Handshake handshake(self, kProtocol);
    if (self.initiate(handshake, attempt.socket, rank) &&
        handshake::send_signed(attempt.socket, "here", handshake, ""))
      // It may wait for others to the end.
      if (auto said =
              handshake::receive_signed(attempt.socket, "members", handshake, end + self_.timeout))
        return said;
    // It closed the connection: as the oldest of too many, or because it has ended.
    if (steady_clock::now() >= answer_by) return std::nullopt;
    std::this_thread::sleep_for(kRetryEvery);
  }
}

// For the lowest rank. It does not wait for lower ranks that it has asked in vain.
comm::Survivors Regroup::gather_ranks(sockets::Deadline end) {
  handshake::Acceptor acceptor(self_, kProtocol, "here", end);
  std::vector<handshake::Acceptor::AcceptedPeer> accepted;
  std::set<int> missing, absent;
  for (int rank = self_.rank + 1; rank < self_.size; ++rank) missing.insert(rank);
  while (!missing.empty() && steady_clock::now() < end)
    accept_next(acceptor, accepted, missing, end);
  std::vector<int> members = {self_.rank};
  for (const handshake::Acceptor::AcceptedPeer& peer : accepted)
    members.push_back(peer.handshake.peer_rank());
  std::sort(members.begin(), members.end());
  for (int rank = 0; rank < self_.size; ++rank)
    if (gone_.count(rank) == 0 && !std::binary_search(members.begin(), members.end(), rank))
      absent.insert(rank);
  remove_dead(absent);  // one may have died while it was asked
  wire::PayloadWriter message;
  std::string refusal;
  if (!absent.empty() && 2 * int(members.size()) <= self_.size) {
    refusal = fmt::format(
        "only {} {} of job '{}' called shrink within {:g} s, and {} {} may still be running: more "
        "than half of the ranks must call it",
        members.size() == 1 ? "rank" : "ranks", fmt::join(members, ", "), self_.job_id,
        std::chrono::duration<double>(self_.timeout).count(), absent.size() == 1 ? "rank" : "ranks",
        fmt::join(absent, ", "));
    message.text("no").text(refusal);
  } else {
    const RendezvousAddress here = rendezvous_address();
    message.text("yes").text(here.address).number(uint64_t(here.port)).number(members.size());
    for (const int member : members) message.number(uint64_t(member));
  }
  // The new rank 0 listens at the same address: no rank may connect to the old listener there.
  if (refusal.empty()) listener_ = system::FileDescriptor();
  for (const handshake::Acceptor::AcceptedPeer& peer : accepted)
    handshake::send_signed(peer.socket, "members", peer.handshake, message.bytes());
  if (!refusal.empty()) self_.fail(comm::CommError::Kind::kTimeout, *absent.begin(), refusal);
  return start_next_job(members, rendezvous_address());
}

void Regroup::accept_next(handshake::Acceptor& acceptor,
                          std::vector<handshake::Acceptor::AcceptedPeer>& accepted,
                          std::set<int>& missing, sockets::Deadline end) {
  auto peer = acceptor.next(listener_, std::min(end, steady_clock::now() + kLookEvery));
  if (!peer) return remove_dead(missing);
  if (missing.erase(peer->handshake.peer_rank()) == 1) accepted.push_back(std::move(*peer));
}

void Regroup::remove_dead(std::set<int>& missing) {
  for (auto rank = missing.begin(); rank != missing.end();) {
    const bool is_gone = attempt_connect(*rank, steady_clock::now() + kProbeFor).is_gone;
    if (is_gone) gone_.insert(*rank);
    rank = is_gone ? missing.erase(rank) : std::next(rank);
  }
}

comm::Survivors Regroup::start_next_job(const std::vector<int>& members,
                                        const RendezvousAddress& address) {
  listener_ = system::FileDescriptor();
  NextJob next;
  next.rank = int(std::find(members.begin(), members.end(), self_.rank) - members.begin());
  next.size = int(members.size());
  next.job_id = id_of(self_, members);
  next.address = address;
  next.limit = self_.timeout;
  return {start_job(next), members};
}

}  // namespace smp::bootstrap
