#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "bootstrap/handshake.h"
#include "waiting/descriptor.h"

namespace smp::bootstrap {

// Where ranks come in who connect to this one: each shakes hands and sends a letter. They do so
// side by side, so that a stranger who says nothing, or half of it, holds nobody up. One thread.
class Entrance {
 public:
  static constexpr size_t kMostCallers = 256;  // that have proved nothing, at once

  struct Guest {
    waiting::Descriptor socket;
    Handshake handshake;
    std::string origin;  // "10.0.0.7", "user 1000"
    std::string letter;
  };

  // Of connections over TCP or of Unix sockets, there of this user's processes alone. `what`: as
  // what the letter is said. Throws std::system_error.
  Entrance(const Participant& self, uint64_t greeting, const char* what);

  // The next who has proved that it belongs here; nothing when nobody has until then. Who does not
  // prove it within kHandshakeLimit is dropped, and counted; of more than kMostCallers who have
  // not, the oldest is, so that those who say nothing keep nobody out. Who is dropped and belongs
  // here comes again.
  std::optional<Guest> next(const waiting::Descriptor& listener, Deadline until);
  void refuse(const std::string& origin) { strangers_.refuse(origin); }
  const Strangers& strangers() const { return strangers_; }

 private:
  struct Caller {
    waiting::Descriptor socket;
    Handshake handshake;
    std::string origin;
    Deadline limit;
    bool is_answered = false;
  };
  enum class Heard { kNotAll, kStranger, kLetter };

  void admit(const waiting::Descriptor& listener);
  Heard hear(Caller& caller, std::string& letter);
  std::optional<Guest> hear_next();
  void drop_late();
  void drop_oldest();

  const Participant& self_;
  const uint64_t greeting_;
  const char* const what_;
  waiting::Descriptor news_;       // tells once of what comes to a caller's socket
  std::map<int, Caller> callers_;  // by descriptor
  Strangers strangers_;
};

}  // namespace smp::bootstrap
