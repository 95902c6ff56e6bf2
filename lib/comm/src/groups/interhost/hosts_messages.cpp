#include <algorithm>
#include <cstring>

#include "groups/interhost/hosts_steps.h"
#include "reduce/copy.h"

// Messages between hosts, and straight ones: the steps of all programs, and send and recv.
namespace smp::groups {
namespace {

constexpr int64_t kCopied = 16 << 10;

}  // namespace

// Copies of a few bytes cost less than to wait until they have left.
void HostsGroup::send_message(progress::Operation& op, net::Channel& channel, int peer,
                              ConstBytes from, int64_t bytes, Way way) {
  if (way.is_straight) {
    check(op, channel.invitation(), peer);
    seat_->port->send_piece(channel, op.call, from, bytes);
  } else if (bytes > kCopied && seat_->port->takes(from, bytes)) {
    seat_->port->send_from(channel, op.call, from, bytes);
  } else {
    if (bytes > 0) reduce::copy_bytes(seat_->port->payload(), from, bytes);
    return send_written(op, channel, bytes);
  }
  op.wire_bytes += bytes;
}

void HostsGroup::send_behind(progress::Operation& op, net::Channel& channel, Head head,
                             ConstBytes from, int64_t bytes) {
  const Bytes payload = seat_->port->payload();
  memcpy(payload, head.from, size_t(head.bytes));
  memset(payload + head.bytes, 0, size_t(head.room - head.bytes));
  if (bytes > kCopied && seat_->port->takes(from, bytes)) {
    seat_->port->send_from(channel, op.call, from, bytes, head.room);
  } else {
    reduce::copy_bytes(payload + head.room, from, bytes);
    seat_->port->send(channel, op.call, head.room + bytes);
  }
  op.wire_bytes += head.bytes + bytes;
}

void HostsGroup::send_written(progress::Operation& op, net::Channel& channel, int64_t bytes) {
  seat_->port->send(channel, op.call, bytes);
  op.wire_bytes += bytes;
}

void HostsGroup::take_message(progress::Operation& op, net::Channel& channel, int peer, Bytes to,
                              int64_t bytes, Way way) {
  if (way.is_straight) return channel.see();
  check_message(op, channel, peer);
  reduce::copy_bytes(to, channel.front_bytes(), bytes);
  channel.take();
}

// The next message may begin while this one leaves.
progress::Program HostsGroup::run_send(progress::Operation& op, net::Channel& channel,
                                       ConstBytes in) {
  const int to = op.call.peer;
  const int64_t bytes = op.call.bytes();
  const Way way = way_of(bytes);
  // Else a receiver who calls something else would not hear of it.
  if (way.is_straight && channel.exposed().load() == channel.pieces_sent())
    channel.tell_waiting(op.call);
  if (bytes <= kCopied && channel.joins() && seat_->port->join(channel, op.call, in, bytes)) {
    op.wire_bytes += bytes;
    op.completes_when(channel.submitted(), channel.sent(), to);
    co_return;
  }
  int64_t at = 0;
  do {
    const int64_t n = std::min(way.most, bytes - at);
    co_await may_send(op, channel, to, way);
    while (!has_room(channel, n)) co_await room_made(op, to);
    send_message(op, channel, to, in + at, n, way);
    at += way.most;
  } while (at < bytes);
  if (bytes > kCopied) op.completes_when(channel.left(), channel.lent(), to);
}

progress::Program HostsGroup::run_recv(progress::Operation& op, net::Channel& channel, Bytes out) {
  const int from = op.call.peer;
  const int64_t bytes = op.call.bytes();
  const Way way = way_of(bytes);
  if (channel.waiting().number == op.call.number) check(op, channel.waiting(), from);
  if (way.is_straight && channel.arrived().load() > channel.taken() &&
      channel.front().number == op.call.number)
    check_message(op, channel, from);
  int64_t at = 0;
  do {
    co_await message_of(op, channel, from, way);
    take_message(op, channel, from, out + at, std::min(way.most, bytes - at), way);
    at += way.most;
  } while (at < bytes);
}

}  // namespace smp::groups
