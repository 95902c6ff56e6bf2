#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/rendezvous/handshake/handshake.h"
#include "smp/rendezvous/handshake/rejected_peers.h"

namespace smp::bootstrap {

// A rank in a rendezvous of its job.
struct Participant : handshake::Member {
  // `address`: see rendezvous_address.
  Participant(handshake::Member member, std::chrono::milliseconds limit, std::string address)
      : handshake::Member(std::move(member)),
        timeout(limit),
        rendezvous_address(std::move(address)) {}

  std::chrono::milliseconds timeout;
  std::string rendezvous_address;  // " at 10.0.0.1 port 29500", for errors; may be empty
  sockets::Deadline deadline = std::chrono::steady_clock::now() + timeout;

  // Throws std::invalid_argument. `where`: "" or " on one host".
  void check(int most_ranks, const char* where) const;
  // The name of the abstract Unix socket at which rank `of_rank` of this job listens on its host;
  // `what` is the purpose. The name is derived from the job's key, so nobody without the key can
  // take it first.
  std::string name_of_socket(const char* what, int of_rank) const;
  bool is_late() const { return std::chrono::steady_clock::now() > deadline; }

  // Handshake::initiate() with rank `other`. Throws CommError for a HandshakeError.
  [[nodiscard]] bool initiate(handshake::Handshake& handshake, const system::FileDescriptor& socket,
                              int other) const;

  // Throw CommErrors whose text begins with this rank.
  [[noreturn]] void fail(comm::CommError::Kind kind, int culprit, const std::string& text) const;
  [[noreturn]] void lost(int other) const;  // or too late
  [[noreturn]] void timed_out(const std::vector<int>& missing,
                              const handshake::RejectedPeers& strangers = {}) const;
  [[noreturn]] void is_taken() const;  // by another process
};

}  // namespace smp::bootstrap
