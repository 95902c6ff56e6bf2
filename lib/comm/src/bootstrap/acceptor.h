#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "bootstrap/handshake.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::bootstrap {

// Accepts the ranks that connect to this one. Each proves by a handshake that it belongs to the
// job, and sends a signed message. All handshakes run side by side, so a peer that is silent or
// stops halfway delays no other. One thread.
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
  // the signature of the message. Throws std::system_error.
  Acceptor(const Participant& self, uint64_t protocol, const char* what);

  // Returns the next authenticated peer; nothing if none is ready at `until`. A peer that does not
  // authenticate within kHandshakeLimit is dropped and counted. Of more than kMostPending such
  // peers the oldest is dropped, so silent peers keep nobody out. A dropped peer that belongs to
  // the job connects again.
  std::optional<AcceptedPeer> next(const system::FileDescriptor& listener, Deadline until);
  void reject(const std::string& origin) { rejected_.reject(origin); }
  const RejectedPeers& rejected() const { return rejected_; }

 private:
  struct PendingPeer {
    system::FileDescriptor socket;
    Handshake handshake;
    std::string origin;
    Deadline limit;
    bool is_answered = false;
  };
  enum class ReadResult { kIncomplete, kRejected, kComplete };

  void accept_pending(const system::FileDescriptor& listener);
  ReadResult read_from(PendingPeer& pending, std::string& message);
  std::optional<AcceptedPeer> read_next();
  void drop_late();
  void drop_oldest();

  const Participant& self_;
  const uint64_t protocol_;
  const char* const what_;
  system::FileDescriptor epoll_;        // edge-triggered: input at a pending socket
  std::map<int, PendingPeer> pending_;  // by descriptor
  RejectedPeers rejected_;
};

}  // namespace smp::bootstrap
