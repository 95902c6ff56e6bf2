#include "bootstrap/shm_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "segment/shared_job.h"
#include "smp/rendezvous/handshake/acceptor.h"
#include "smp/rendezvous/handshake/signed_message.h"
#include "smp/rendezvous/sockets/unix_socket.h"

namespace smp::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kProtocol = 0x354f4c4c45484d53;  // "SMHELLO5"

struct Verdict {
  int32_t accepted = 0;
};

class ShmRendezvousRun {
 public:
  ShmRendezvousRun(const Participant& self, const std::vector<int>& here, bool with_doorbells)
      : self_(self), here_(here), acceptor_(self, kProtocol, "hello", self.deadline) {
    if (!with_doorbells) return;
    doorbells_.resize(size_t(self.size));
    own_bell() = waiting::Doorbell::make();
  }

  ShmRendezvous run() {
    peers_.resize(size_t(self_.size));
    const system::FileDescriptor listener = listen();
    std::optional<segment::Mapping> mapping;
    if (self_.rank == here_.front()) {
      mapping.emplace(
          segment::Mapping::memfd(segment::SharedJob::bytes(self_.size, int(here_.size()))));
      memfd_ = mapping->fd();
      segment::SharedJob::prepare(*mapping, self_.size, int(here_.size()));
    }
    for (const int rank : here_)
      if (rank < self_.rank) connect_to(rank);
    while (has_missing()) accept_from(listener);
    if (self_.rank != here_.front()) mapping.emplace(segment::Mapping::of_fd(received_.release()));
    mapping->close_fd();
    return ShmRendezvous{std::move(*mapping), std::move(peers_), std::move(doorbells_)};
  }

 private:
  system::FileDescriptor listen() const {
    try {
      return sockets::listen_unix(self_.name_of_socket("rendezvous", self_.rank));
    } catch (const std::system_error& e) {
      if (e.code() != std::errc::address_in_use) throw;
      self_.is_taken();
    }
  }

  bool same_user(const system::FileDescriptor& socket) const {
    return sockets::user_of_peer(socket) == geteuid();
  }

  void connect_to(int rank) {
    system::FileDescriptor socket;
    while (!(socket = sockets::try_connect_unix(self_.name_of_socket("rendezvous", rank)))) {
      check_connected();
      if (self_.is_late()) self_.timed_out({rank});
      std::this_thread::sleep_for(milliseconds(2));
    }
    if (!same_user(socket))
      self_.fail(comm::CommError::Kind::kMismatch, rank,
                 fmt::format("rank {} of job '{}' belongs to another user", rank, self_.job_id));
    handshake::Handshake handshake(self_, kProtocol);
    if (!self_.initiate(handshake, socket, rank)) self_.lost(rank);
    Verdict verdict;
    if (!handshake::send_signed(socket, "hello", handshake, "") ||
        !sockets::receive_all(socket, &verdict, sizeof(verdict), self_.deadline, &received_))
      self_.lost(rank);
    if (!verdict.accepted || (rank == here_.front() && !received_))
      self_.fail(comm::CommError::Kind::kMismatch, self_.rank,
                 fmt::format("rank {} of job '{}' refused this process: rank {} has joined already",
                             rank, self_.job_id, self_.rank));
    if (!swap_doorbells(socket, rank, self_.deadline)) self_.lost(rank);
    peers_[size_t(rank)] = std::move(socket);
  }

  waiting::Doorbell& own_bell() { return doorbells_[size_t(self_.rank)]; }

  bool swap_doorbells(const system::FileDescriptor& socket, int other, sockets::Deadline deadline) {
    if (doorbells_.empty()) return true;
    char byte = 0;
    system::FileDescriptor bell;
    if (!sockets::send_all(socket, &byte, 1, own_bell().descriptor()) ||
        !sockets::receive_all(socket, &byte, 1, deadline, &bell) || !bell)
      return false;
    doorbells_[size_t(other)] = waiting::Doorbell(std::move(bell));
    return true;
  }

  // Waits for one more connection; one that does not prove that it belongs here is dropped.
  void accept_from(const system::FileDescriptor& listener) {
    auto accepted =
        acceptor_.next(listener, std::min(self_.deadline, steady_clock::now() + milliseconds(100)));
    if (!accepted) {
      check_connected();
      if (self_.is_late()) self_.timed_out(missing(), acceptor_.rejected());
      return;
    }
    const int peer = accepted->handshake.peer_rank();
    Verdict verdict;
    verdict.accepted = accepted->handshake.peer_size() == self_.size && peer > self_.rank &&
                       std::binary_search(here_.begin(), here_.end(), peer) &&
                       !peers_[size_t(peer)];
    const int memfd = verdict.accepted ? memfd_ : -1;
    if (!sockets::send_all(accepted->socket, &verdict, sizeof(verdict), memfd) || !verdict.accepted)
      return;
    const auto limit = std::min(self_.deadline, steady_clock::now() + handshake::kHandshakeLimit);
    if (swap_doorbells(accepted->socket, peer, limit))
      peers_[size_t(peer)] = std::move(accepted->socket);
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (const int rank : here_)
      if (rank != self_.rank && !peers_[size_t(rank)]) ranks.push_back(rank);
    return ranks;
  }
  bool has_missing() const { return !missing().empty(); }

  void check_connected() const {
    for (int rank = 0; rank < self_.size; ++rank)
      if (peers_[size_t(rank)] && sockets::closed_by_peer(peers_[size_t(rank)])) self_.lost(rank);
  }

  const Participant& self_;
  const std::vector<int>& here_;
  handshake::Acceptor acceptor_;
  std::vector<system::FileDescriptor> peers_;
  std::vector<waiting::Doorbell> doorbells_;
  int memfd_ = -1;
  system::FileDescriptor received_;
};

}  // namespace

ShmRendezvous shm_rendezvous(const Participant& self, const std::vector<int>& here,
                             bool with_doorbells) {
  return ShmRendezvousRun(self, here, with_doorbells).run();
}

std::vector<int> processes_of(const std::vector<system::FileDescriptor>& peers) {
  std::vector<int> processes;
  for (const system::FileDescriptor& peer : peers) {
    if (!peer) continue;
    if (const auto pid = sockets::pid_of_peer(peer)) processes.push_back(*pid);
  }
  return processes;
}

}  // namespace smp::bootstrap
