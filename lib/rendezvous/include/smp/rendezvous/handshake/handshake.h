#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "smp/plan/base/proof.h"
#include "smp/plan/system/file_descriptor.h"
#include "smp/rendezvous/sockets/stream_socket.h"

namespace smp::handshake {

// A process of a job: a rank, or smp-launch on a host. The members of a job know one key, which is
// never sent.
struct Member {
  int rank = 0, size = 1;  // among the members
  std::string job_id;      // every signature is bound to it
  std::string job_key;
};

// The other end does not match this one.
class HandshakeError : public std::runtime_error {
 public:
  enum class Reason { kVersion, kSize, kKey };
  HandshakeError(Reason reason, int peer_size);
  Reason reason;
  int peer_size;  // the size of the job as the other end was told; of kSize
};

// The mutual authentication of two members over one connection:
//
//   initiator   protocol, rank, size, nonce
//   responder   protocol, rank, size, nonce, proof of both      the initiator checks it
//   initiator   a signed message (signed_message.h)             the responder checks it
//
// One object for each connection. Nothing is encrypted.
class Handshake {
  struct Hello {
    uint64_t protocol = 0;
    int32_t rank = 0, size = 0;
    Nonce nonce{};
  };

 public:
  static constexpr size_t kHelloBytes = sizeof(Hello);  // the first bytes of the initiator

  // Both sides give the same `protocol`: it names the purpose of the connection and its version.
  // `self` outlives the handshake.
  Handshake(const Member& self, uint64_t protocol);

  // For the member that connects to the member of rank `other`. False if the connection ends or the
  // deadline passes. Throws HandshakeError if the other end has another key, version, rank or job
  // size.
  [[nodiscard]] bool initiate(const system::FileDescriptor& socket, int other,
                              sockets::Deadline deadline);
  // For the member that accepts the connection. False if the peer does not know the protocol, or
  // the connection ends.
  bool respond(const system::FileDescriptor& socket, sockets::Deadline deadline);

  // Authenticates `bytes` as a message of kind `what` in this connection.
  Mac proof(const char* what, const std::string& bytes = "") const;

  // The member that connected, and the size of its job as it was told. Trust them after its first
  // signed message.
  int peer_rank() const { return hello_.rank; }
  int peer_size() const { return hello_.size; }

 private:
  struct Answer {
    uint64_t protocol = 0;
    int32_t rank = 0, size = 0;
    Nonce nonce{};
    Mac proof{};
  };

  const Member* self_;
  uint64_t protocol_;
  Hello hello_;
  Answer answer_;
};

// The longest time for a handshake.
inline constexpr std::chrono::milliseconds kHandshakeLimit{2000};

}  // namespace smp::handshake
