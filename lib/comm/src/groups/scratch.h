#pragma once

#include <cstddef>
#include <memory>

#include "groups/seat.h"

namespace smp::groups {

// The memory that a group between hosts works in. It comes from the rank's symmetric part, so the
// ranks of the host read and write it in place. If messages are sent from it, a network that wants
// registered memory has it registered. Use it under the engine's lock.
class Scratch {
 public:
  Scratch(Seat& seat, bool is_sent_from)
      : seat_(seat), is_registered_(is_sent_from && !seat.port->takes_any_memory()) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::byte* data() const { return block_.get(); }
  // Makes room for so many bytes; what was in it may be lost. Throws what Arena::allocate and
  // Port::adopt throw.
  void resize(size_t bytes) {
    if (bytes <= bytes_) return;
    drop();
    block_ = seat_.arena->allocate(int64_t(bytes));
    bytes_ = bytes;
    if (is_registered_) seat_.port->adopt(block_.get(), int64_t(bytes));
  }
  // Call it before the group goes. After a failure a rank that was stopped may still write to this
  // memory, so nobody else gets it while the seat is held.
  void end(bool has_failed) {
    if (has_failed && block_) seat_.kept.push_back(block_);
    drop();
  }

 private:
  void drop() {
    if (block_ && is_registered_) seat_.port->forget(block_.get());
    block_.reset();
    bytes_ = 0;
  }

  Seat& seat_;
  const bool is_registered_;
  std::shared_ptr<std::byte[]> block_;
  size_t bytes_ = 0;
};

}  // namespace smp::groups
