#pragma once

#include <cstddef>
#include <memory>

#include "groups/rank_context.h"

namespace smp::groups {

// The work memory of a group between hosts. It comes from the rank's symmetric part, so the ranks
// of the host read and write it in place. Memory that messages are sent from is registered with
// a network that requires registered memory. Use it under the engine's lock.
class Scratch {
 public:
  Scratch(RankContext& context, bool is_sent_from)
      : context_(context), is_registered_(is_sent_from && !context.endpoint->takes_any_memory()) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::byte* data() const { return block_.get(); }
  // Makes room for `bytes`; the old contents may be lost. Throws what Arena::allocate and
  // NetworkEndpoint::register_memory throw.
  void resize(size_t bytes) {
    if (bytes <= bytes_) return;
    drop();
    block_ = context_.arena->allocate(int64_t(bytes));
    bytes_ = bytes;
    if (is_registered_) context_.endpoint->register_memory(block_.get(), int64_t(bytes));
  }
  // Call it before the group ends. After a failure a rank that was stopped may still write to this
  // memory, so it is quarantined as long as the rank context lives.
  void end(bool has_failed) {
    if (has_failed && block_) context_.quarantined.push_back(block_);
    drop();
  }

 private:
  void drop() {
    if (block_ && is_registered_) context_.endpoint->deregister_memory(block_.get());
    block_.reset();
    bytes_ = 0;
  }

  RankContext& context_;
  const bool is_registered_;
  std::shared_ptr<std::byte[]> block_;
  size_t bytes_ = 0;
};

}  // namespace smp::groups
