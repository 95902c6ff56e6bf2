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

// Who came to a meeting and did not belong there.
class Strangers {
 public:
  void refuse(const std::string& origin) { ++by_origin_[origin]; }
  // "; 3 strangers were refused (2 from 10.0.0.9, 1 from 10.0.0.7)"; nothing when none came.
  std::string text() const;

 private:
  std::map<std::string, int> by_origin_;
};

// A rank that comes together with the others of its job.
struct Participant {
  int rank, size;
  std::string job_id, job_key;
  std::chrono::milliseconds timeout;
  std::string meeting_point;  // " to 10.0.0.1 port 29500", for errors; may be empty
  Deadline deadline = std::chrono::steady_clock::now() + timeout;

  // Throws std::invalid_argument. `place`: "" or " on one host".
  void check(int most_ranks, const char* place) const;
  // Of the abstract Unix socket at which a rank of this job waits on its host, `what` for. Who does
  // not know the key cannot tell it, and so cannot take it first.
  std::string name_of_socket(const char* what, int of_rank) const;
  bool is_late() const { return std::chrono::steady_clock::now() > deadline; }

  // CommErrors that begin with who says it.
  [[noreturn]] void fail(comm::CommError::Kind kind, int culprit, const std::string& text) const;
  [[noreturn]] void lost(int other) const;  // or too late
  [[noreturn]] void timed_out(const std::vector<int>& missing,
                              const Strangers& strangers = {}) const;
  [[noreturn]] void is_taken() const;  // by another process
};

// How two ranks show each other that they belong to one job: both prove that they know its key,
// which is not sent. One for each connection.
class Handshake {
  struct Hello {
    uint64_t greeting = 0;
    int32_t rank = 0, size = 0;
    Nonce nonce{};
  };

 public:
  static constexpr size_t kHelloBytes = sizeof(Hello);  // that a guest says first

  // Both sides give the same `greeting`: it says which meeting this is, and its version.
  Handshake(const Participant& self, uint64_t greeting);

  // Of the rank that connects to `other`. False when the other end goes away, or it is late. Throws
  // CommError when it is somebody else, or was told something else.
  [[nodiscard]] bool greet(const waiting::Descriptor& socket, int other);
  // Of the rank that is connected to. False when nobody asks who knows what this is about.
  bool answer(const waiting::Descriptor& socket, Deadline deadline);

  // That `bytes` are said as `what` in this conversation, by somebody who knows the key.
  Mac proof(const char* what, const std::string& bytes = "") const;

  // The rank that connected, and how many it was told there are: to be believed after its proof.
  int guest() const { return hello_.rank; }
  int guest_size() const { return hello_.size; }

 private:
  struct Answer {
    uint64_t greeting = 0;
    int32_t rank = 0, size = 0;
    Nonce nonce{};
    Mac proof{};
  };

  const Participant* self_;
  uint64_t greeting_;
  Hello hello_;
  Answer answer_;
};

// A stranger that says nothing holds nobody up for longer.
inline constexpr std::chrono::milliseconds kHandshakeLimit{2000};

}  // namespace smp::bootstrap
