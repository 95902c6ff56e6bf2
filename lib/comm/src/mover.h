#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace smp::shm {

// What a rank does, as it tells one whose call it holds up.
struct Standing {
  bool is_mute = false;     // it does not tell
  bool is_stopped = false;  // as its host says
  bool has_called = false;  // the same call
  bool is_behind = false;   // it had no CPU lately: may wait no more for whom it waited for
  int waits_for = -1;       // in this call if it has made it, else in whichever it waits in
  std::string last_call;    // empty: none, or not told
  std::string last_call_of_awaited;
};

// What moves counters of programs besides other ranks of this host: the network. Has no thread of
// its own; the engine calls it under its lock, often.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual bool poll() = 0;  // whether anything moved
  // Somebody waits now for what has been called: what was held back for more calls leaves.
  virtual void send_held() = 0;
  // The same, before somebody sleeps: with what peers need to hear only when it takes so long.
  virtual void say_waiting() = 0;
  // A descriptor that can be read once poll() has something to do, or kPollAgain when that may be
  // so already, or kNoDescriptor: to be asked each time before somebody sleeps there.
  virtual int where_to_sleep() = 0;
  virtual bool is_impatient() const = 0;  // must be polled again soon, whatever a descriptor says
  virtual bool is_elsewhere(int rank) const = 0;  // on another host
  // What such a rank does, asked not before `since`, about a call of the group with this key (0: in
  // general); nothing as long as the answer is on its way.
  virtual std::optional<Standing> ask(int rank, uint64_t key, uint64_t number,
                                      std::chrono::steady_clock::time_point since) = 0;
  // How long such a rank may leave that open before it counts as mute.
  virtual std::chrono::milliseconds mute_after() const = 0;
};

}  // namespace smp::shm
