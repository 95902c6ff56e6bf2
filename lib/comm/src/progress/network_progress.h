#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace smp::progress {

// The status of a rank, as an answer to a rank whose call it delays.
struct PeerStatus {
  bool is_unresponsive = false;  // the rank does not answer
  bool is_stopped = false;       // as reported by the kernel, for a rank of this host
  bool has_called = false;       // the rank has made the same call
  bool is_behind = false;        // the rank had no CPU lately: `waits_for` may be stale
  int waits_for = -1;            // in this call if the rank has made it, else in any call
  std::string last_call;         // empty: none, or unknown
  std::string last_call_of_awaited;
};

// The network as the progress engine sees it. Like the ranks of this host, the network raises
// counters that programs await. It has no thread; the engine polls it often, under its lock.
class NetworkProgress {
 public:
  virtual ~NetworkProgress() = default;
  virtual bool poll() = 0;  // whether anything moved
  // Called when a thread waits for its calls: sends messages that were held back to be combined
  // with later ones.
  virtual void send_held() = 0;
  // As above, before a thread sleeps. Also sends notices that peers need only in such long waits.
  virtual void send_waiting() = 0;
  // A descriptor that becomes readable when poll() has work. Or kPollAgain, if it may have work
  // already, or kNoDescriptor. Ask each time before a thread sleeps there.
  virtual int wait_descriptor() = 0;
  // Whether it must be polled again soon, whatever the descriptor says.
  virtual bool needs_poll() const = 0;
  virtual bool is_on_other_host(int rank) const = 0;  // on another host
  // The status of such a rank in a call of the group with this key (0: in general), as it answers a
  // question sent at `since` or later. Nothing while the answer is on its way.
  virtual std::optional<PeerStatus> query_status(int rank, uint64_t key, uint64_t number,
                                                 std::chrono::steady_clock::time_point since) = 0;
  // How long such a rank may leave a question unanswered before it counts as unresponsive.
  virtual std::chrono::milliseconds unresponsive_after() const = 0;
};

}  // namespace smp::progress
