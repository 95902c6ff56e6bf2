#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/system/file_descriptor.h"
#include "smp/rendezvous/handshake/handshake.h"
#include "smp/rendezvous/handshake/rejected_peers.h"

namespace smp::handshake {

// Accepts the members of a job that connect to this one. Each proves by a handshake that it belongs
// to the job, and sends a signed message. All handshakes run side by side, so a peer that is silent
// or stops halfway delays no other. One thread.
class Acceptor {
 public:
  static constexpr size_t kMostPending = 256;  // unauthenticated connections, at once

  struct AcceptedPeer {
    system::FileDescriptor socket;
    Handshake handshake;
    std::string origin;  // "10.0.0.7", "user 1000"
    std::string message;
  };

  // Takes TCP connections, or Unix sockets of this user's processes alone. `what`: the purpose in
  // the signature of the message. `deadline`: of sends to the peers. `self` outlives the acceptor.
  // Throws std::system_error.
  Acceptor(const Member& self, uint64_t protocol, const char* what, sockets::Deadline deadline);

  // Returns the next authenticated peer; nothing if none is ready at `until`, or when one of the
  // descriptors `wake` becomes readable. A peer that does not
  // authenticate within kHandshakeLimit is dropped and counted. Of more than kMostPending such
  // peers the oldest is dropped, and so it is when this process may open no more files: silent
  // peers keep nobody out. A dropped peer that belongs to the job connects again. Throws
  // std::system_error.
  std::optional<AcceptedPeer> next(const system::FileDescriptor& listener, sockets::Deadline until,
                                   const std::vector<int>& wake = {});
  void reject(const std::string& origin) { rejected_.reject(origin); }
  const RejectedPeers& rejected() const { return rejected_; }

 private:
  struct PendingPeer {
    system::FileDescriptor socket;
    Handshake handshake;
    std::string origin;
    sockets::Deadline limit;
    bool is_answered = false;
  };
  enum class ReadResult { kIncomplete, kRejected, kComplete };

  system::FileDescriptor accept_or_make_room(const system::FileDescriptor& listener);
  void accept_pending(const system::FileDescriptor& listener);
  ReadResult read_from(PendingPeer& pending, std::string& message);
  std::optional<AcceptedPeer> read_next();
  void drop_late();
  void drop_oldest();

  const Member& self_;
  const uint64_t protocol_;
  const char* const what_;
  const sockets::Deadline deadline_;
  system::FileDescriptor epoll_;        // edge-triggered: input at a pending socket
  std::map<int, PendingPeer> pending_;  // by descriptor
  RejectedPeers rejected_;
};

}  // namespace smp::handshake
