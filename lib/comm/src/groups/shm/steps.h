#pragma once

#include <fmt/format.h>

#include "groups/shm/group.h"

// Steps that the programs of a group are made of. A rank publishes slots of its ring, which all
// peers read: `published_` counts its own slots, `consumed_[p]` the slots of peer p that it has
// read. Every rank knows how many slots each peer publishes for an operation, so these counts need
// no message.
namespace smp::groups {

inline auto Group::called_by(progress::Operation& op, int peer) {
  return op.reaches(block_.call(peer, op.call.number).number, op.call.number, peer);
}

// Until all ranks have made this call.
inline auto Group::called_by_all(progress::Operation& op) {
  return op.all_reach(block_.call(0, op.call.number).number, block_.share_bytes(), size_,
                      op.call.number);
}

// Until this piece of the parts of all ranks is made.
inline auto Group::all_done(progress::Operation& op, int piece, bool or_wanted) {
  return op.all_reach(block_.control(0).pieces[piece].done, block_.share_bytes(), size_,
                      op.call.number, or_wanted);
}

inline auto Group::slot_free(progress::Operation& op, int reader) {
  const uint64_t needed = slots_needed();
  // Ready at once. Reads no counter of slots, because their cache lines are in the caches of peers.
  if (has_taken(reader, needed)) return op.reaches(completed_, 0, rank_);
  return op.reaches(block_.taken(rank_, reader).value, needed, reader);
}

// Until `reader` has read all slots that this rank has published.
inline auto Group::all_taken(progress::Operation& op, int reader) {
  return op.reaches(block_.taken(rank_, reader).value, published_, reader);
}

// Never reached: waits until the engine ends the call because of `peer`.
inline auto Group::never(progress::Operation& op, int peer) {
  return op.reaches(block_.control(peer).published.value, UINT64_MAX, peer);
}

inline auto Group::slot_of(progress::Operation& op, int peer) {
  return op.reaches(block_.control(peer).published.value, consumed_[size_t(peer)] + 1, peer);
}

}  // namespace smp::groups
