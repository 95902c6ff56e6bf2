#pragma once

#include "groups/interhost/hosts_group.h"
#include "net/mesh_order.h"

// Steps that the programs of a group between hosts are made of.
namespace smp::groups {

// 16-bit partials would be rounded once more.
inline bool widens(const progress::Call& call, int per_host) {
  return bytes_of(call.dtype) == 2 && per_host > 1;
}

// Bytes of a round in which each rank sends so many, all in all.
inline int64_t round_bytes(int64_t all) {
  return all > mesh::kMessageBytes ? net::kRoundBytes : mesh::kMessageBytes;
}

// What the members of a host do for the whole: only the last sum is divided.
inline comm::ReduceOp partial_op(const progress::Call& call) {
  return call.reduce_op == comm::ReduceOp::kAverage ? comm::ReduceOp::kSum : call.reduce_op;
}

inline auto HostsGroup::may_send(progress::Operation& op, net::Channel& channel, int peer,
                                 Way way) {
  return way.is_straight ? op.reaches(channel.exposed(), channel.pieces_sent() + 1, peer)
                         : op.reaches(channel.credits(), channel.sent() + 1, peer);
}

inline auto HostsGroup::room_made(progress::Operation& op, int peer) {
  const std::atomic<uint64_t>& freed = seat_->port->freed();
  return op.reaches(freed, freed.load() + 1, peer);
}

inline auto HostsGroup::message_of(progress::Operation& op, net::Channel& channel, int peer,
                                   Way way) {
  return way.is_straight ? op.reaches(channel.placed(), channel.pieces_seen() + 1, peer)
                         : op.reaches(channel.arrived(), channel.taken() + 1, peer);
}

// What was sent from callers' memory on this rail.
inline auto HostsGroup::all_left(progress::Operation& op, int host) {
  return op.reaches(rail(host).left(), rail(host).lent(), member(host, place_));
}

inline auto HostsGroup::all_steps_done(progress::Operation& op) {
  return op.reaches(steps_done_, steps_started_, -1);
}

// All but the last `later` of those that were started: steps inside the host end in their order.
inline auto HostsGroup::steps_done_but(progress::Operation& op, int later) {
  return op.reaches(steps_done_, steps_started_ - uint64_t(later), -1);
}

}  // namespace smp::groups
