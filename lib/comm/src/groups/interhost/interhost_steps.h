#pragma once

#include "groups/interhost/interhost_group.h"
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

// The reduction of partial sums: only the last sum divides for an average.
inline comm::ReduceOp partial_op(const progress::Call& call) {
  return call.reduce_op == comm::ReduceOp::kAverage ? comm::ReduceOp::kSum : call.reduce_op;
}

inline auto InterhostGroup::may_send(progress::Operation& op, net::Channel& channel, int peer,
                                     MessagePath path) {
  return path.is_zero_copy ? op.reaches(channel.advertised(), channel.pieces_sent() + 1, peer)
                           : op.reaches(channel.credits(), channel.sent() + 1, peer);
}

inline auto InterhostGroup::room_made(progress::Operation& op, int peer) {
  const std::atomic<uint64_t>& freed = context_->endpoint->freed();
  return op.reaches(freed, freed.load() + 1, peer);
}

inline auto InterhostGroup::message_of(progress::Operation& op, net::Channel& channel, int peer,
                                       MessagePath path) {
  return path.is_zero_copy
             ? op.reaches(channel.pieces_received(), channel.pieces_consumed() + 1, peer)
             : op.reaches(channel.arrived(), channel.taken() + 1, peer);
}

// Until the zero-copy sends on this rail have completed.
inline auto InterhostGroup::zero_copies_done(progress::Operation& op, int host) {
  return op.reaches(rail(host).zero_copy_done(), rail(host).zero_copy_sent(), member(host, place_));
}

inline auto InterhostGroup::all_steps_done(progress::Operation& op) {
  return op.reaches(steps_done_, steps_started_, -1);
}

// Until all steps are done except the last `later` started ones. Steps inside the host end in
// order.
inline auto InterhostGroup::steps_done_but(progress::Operation& op, int later) {
  return op.reaches(steps_done_, steps_started_ - uint64_t(later), -1);
}

}  // namespace smp::groups
