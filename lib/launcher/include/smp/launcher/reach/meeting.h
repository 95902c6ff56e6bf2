#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "smp/plan/system/file_descriptor.h"

// A meeting is how agents come to smp-launch where it cannot start them: on every host somebody (a
// person, Kubernetes, mpirun) starts smp-launch; one waits at an address that all of them know, the
// others connect to it. Both sides prove that they know the same key without showing it, and from
// then on the connection is the channel of an agent.
//
//   guest   greeting, order, slots, hosts, nonce
//   waiter  nonce, proof of both                  the guest leaves when it is wrong
//   guest   proof of both                         the waiter hangs up when it is wrong
//   waiter  verdict
//
// What follows is not encrypted.
namespace smp::reach {

struct MeetingPlace {
  std::string host;  // a name or an address
  int port = 0;      // 0, for the waiter alone: a free one
};

// "host:29400", "[fe80::1]:29400". Throws ConfigError, with `option`, for anything else.
MeetingPlace parse_meeting_place(const std::string& option, const std::string& text);

// The key in a file, without blanks around it. Throws ConfigError when it cannot be read, is
// shorter than 16 characters, or may be read by everybody.
std::string read_key_file(const std::string& path);

// What an agent says of itself.
struct MeetingGuest {
  int order = 0;  // among the hosts; no two have the same
  int slots = 0;  // ranks that it will take; 0: not said
  int hosts = 0;  // of the job
};

struct ArrivedGuest {
  MeetingGuest guest;
  system::FileDescriptor channel;
};

// The time was over before all had come; take() has those that came.
class MeetingOver : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The side that waits. One thread.
class Meeting {
 public:
  // Listens at the place, which has to be an address of this host; at "::" for IPv4 too. Throws
  // ConfigError.
  Meeting(const MeetingPlace& place, std::string key);
  ~Meeting();
  Meeting(Meeting&&) noexcept;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  const std::string& key() const { return key_; }
  const std::string& address() const { return address_; }  // as digits
  int port() const { return port_; }

  // Waits until `count` guests have come, who say what `self` says; in their order. Connections
  // that prove nothing are dropped, and hold up nobody. A number if `control_fd` (-1: none) asked
  // to end before that (asked_to_end). Where there is `goes_on()`, asks it after each that came,
  // when `events_fd` (-1: none) is readable, and every 100 ms, and returns, with fewer guests,
  // where nobody comes any more. Throws MeetingOver. Nobody is listened to afterwards.
  std::optional<int> gather(size_t count, const MeetingGuest& self, std::chrono::milliseconds time,
                            int control_fd, const std::set<int>& ending_signals = {},
                            int events_fd = -1, const std::function<bool()>& goes_on = {});
  const std::vector<ArrivedGuest>& arrived() const { return arrived_; }
  std::vector<ArrivedGuest> take() { return std::move(arrived_); }
  void close();  // to all, those that have come and were not taken too

 private:
  struct Stranger;

  void accept_some();
  bool hear(Stranger& stranger, const MeetingGuest& self);
  void close_old();
  void stop_listening();

  std::string key_, address_;
  int port_ = 0;
  system::FileDescriptor listener_;
  std::vector<std::unique_ptr<Stranger>> strangers_;
  std::vector<ArrivedGuest> arrived_;
};

// The side that comes: tries until it is let in. Throws std::runtime_error when the time is over,
// ConfigError when it is refused.
system::FileDescriptor join_meeting(const MeetingPlace& place, const std::string& key,
                                    const MeetingGuest& guest, std::chrono::milliseconds time);

}  // namespace smp::reach
