#pragma once

#include <fmt/format.h>

#include "group.h"

// Steps that the programs of a group are made of. A rank publishes slots of its ring, which all
// peers read: `published_` counts its own, `consumed_[p]` those of peer p that it is done with.
// Every rank knows how many slots each peer publishes for an operation, so the counts never need a
// message.
namespace smp::shm {

inline auto Group::called_by(Operation& op, int peer) {
  return op.reaches(block_.call(peer, op.call.number).number, op.call.number, peer);
}

inline auto Group::slot_free(Operation& op, int reader) {
  const uint64_t before = published_ + 1;
  return op.reaches(block_.taken(rank_, reader).value,
                    before > uint64_t(kRingSlots) ? before - uint64_t(kRingSlots) : 0, reader);
}

inline auto Group::slot_of(Operation& op, int peer) {
  return op.reaches(block_.control(peer).published.value, consumed_[size_t(peer)] + 1, peer);
}

}  // namespace smp::shm
