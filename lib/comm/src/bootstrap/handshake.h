#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bootstrap/local_socket.h"
#include "smp/comm/communicator.h"
#include "smp/plan/base/proof.h"

namespace smp::bootstrap {

// Counts the connections that were rejected, by origin.
class RejectedPeers {
 public:
  void reject(const std::string& origin) { ++by_origin_[origin]; }
  // "; 3 connections were rejected (2 from 10.0.0.9, 1 from 10.0.0.7)"; "" if there were none.
  std::string text() const;

 private:
  std::map<std::string, int> by_origin_;
};

// A rank in a rendezvous of its job.
struct Participant {
  int rank, size;
  std::string job_id, job_key;
  std::chrono::milliseconds timeout;
  std::string rendezvous_address;  // " to 10.0.0.1 port 29500", for errors; may be empty
  Deadline deadline = std::chrono::steady_clock::now() + timeout;

  // Throws std::invalid_argument. `where`: "" or " on one host".
  void check(int most_ranks, const char* where) const;
  // The name of the abstract Unix socket at which rank `of_rank` of this job listens on its host;
  // `what` is the purpose. The name is derived from the job's key, so nobody without the key can
  // take it first.
  std::string name_of_socket(const char* what, int of_rank) const;
  bool is_late() const { return std::chrono::steady_clock::now() > deadline; }

  // Throw CommErrors whose text begins with this rank.
  [[noreturn]] void fail(comm::CommError::Kind kind, int culprit, const std::string& text) const;
  [[noreturn]] void lost(int other) const;  // or too late
  [[noreturn]] void timed_out(const std::vector<int>& missing,
                              const RejectedPeers& strangers = {}) const;
  [[noreturn]] void is_taken() const;  // by another process
};

// The mutual authentication of two ranks: both prove that they know the job's key, which is not
// sent. One object for each connection.
class Handshake {
  struct Hello {
    uint64_t protocol = 0;
    int32_t rank = 0, size = 0;
    Nonce nonce{};
  };

 public:
  static constexpr size_t kHelloBytes = sizeof(Hello);  // the first bytes of the connecting rank

  // Both sides give the same `protocol`: it names the purpose of the connection and its version.
  Handshake(const Participant& self, uint64_t protocol);

  // For the rank that connects to `other`. False if the connection ends or the deadline passes.
  // Throws CommError if the other end has another key, version, rank or job size.
  [[nodiscard]] bool initiate(const system::FileDescriptor& socket, int other);
  // For the rank that accepts the connection. False if the peer does not know the protocol, or the
  // connection ends.
  bool respond(const system::FileDescriptor& socket, Deadline deadline);

  // Authenticates `bytes` as a message of kind `what` in this connection.
  Mac proof(const char* what, const std::string& bytes = "") const;

  // The rank that connected, and the size of its job as it was told. Trust them after its first
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

  const Participant* self_;
  uint64_t protocol_;
  Hello hello_;
  Answer answer_;
};

// The longest time for a handshake.
inline constexpr std::chrono::milliseconds kHandshakeLimit{2000};

}  // namespace smp::bootstrap
