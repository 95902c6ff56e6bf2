#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace smp::progress {

// What a rank does, as it tells a rank whose call it delays.
struct Standing {
  bool is_mute = false;     // it does not answer
  bool is_stopped = false;  // as the kernel says, of a rank of this host
  bool has_called = false;  // it has made the same call
  bool is_behind = false;   // it had no CPU lately, so `waits_for` may be out of date
  int waits_for = -1;       // in this call if it has made it, else in any call
  std::string last_call;    // empty: none, or not told
  std::string last_call_of_awaited;
};

// What raises counters of programs besides other ranks of this host: the network. It has no thread
// of its own; the engine calls it often, under its lock.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual bool poll() = 0;  // whether anything moved
  // Somebody now waits for calls that were made: sends what was held back for more calls.
  virtual void send_held() = 0;
  // The same, before a thread sleeps; also sends what peers need to hear only in such long waits.
  virtual void say_waiting() = 0;
  // A descriptor that can be read once poll() has something to do, or kPollAgain if it may have so
  // already, or kNoDescriptor. To be asked each time before a thread sleeps there.
  virtual int where_to_sleep() = 0;
  // It must be polled again soon, whatever a descriptor says.
  virtual bool is_impatient() const = 0;
  virtual bool is_elsewhere(int rank) const = 0;  // on another host
  // What such a rank does in a call of the group with this key (0: in general), as it answers a
  // question that was sent at `since` or later; nothing while the answer is on its way.
  virtual std::optional<Standing> ask(int rank, uint64_t key, uint64_t number,
                                      std::chrono::steady_clock::time_point since) = 0;
  // How long such a rank may leave a question open before it counts as mute.
  virtual std::chrono::milliseconds mute_after() const = 0;
};

}  // namespace smp::progress
