#include <algorithm>
#include <cstring>

#include "groups/interhost/interhost_steps.h"
#include "reduce/copy.h"

// Messages between hosts, zero-copy ones too: the steps of all programs, and send and recv.
namespace smp::groups {
namespace {

constexpr int64_t kCopied = 16 << 10;

}  // namespace

// Copying a few bytes costs less than waiting until they are sent.
void InterhostGroup::send_message(progress::Operation& op, net::Channel& channel, int peer,
                                  ConstBytes from, int64_t bytes, MessagePath path) {
  if (path.is_zero_copy) {
    check(op, channel.advertisement(), peer);
    context_->endpoint->send_piece(channel, op.call, from, bytes);
  } else if (bytes > kCopied && context_->endpoint->takes(from, bytes)) {
    context_->endpoint->send_from(channel, op.call, from, bytes);
  } else {
    if (bytes > 0) reduce::copy_bytes(context_->endpoint->payload(), from, bytes);
    return send_written(op, channel, bytes);
  }
  op.wire_bytes += bytes;
}

void InterhostGroup::send_behind(progress::Operation& op, net::Channel& channel, Head head,
                                 ConstBytes from, int64_t bytes) {
  const Bytes payload = context_->endpoint->payload();
  memcpy(payload, head.from, size_t(head.bytes));
  memset(payload + head.bytes, 0, size_t(head.room - head.bytes));
  if (bytes > kCopied && context_->endpoint->takes(from, bytes)) {
    context_->endpoint->send_from(channel, op.call, from, bytes, head.room);
  } else {
    reduce::copy_bytes(payload + head.room, from, bytes);
    context_->endpoint->send(channel, op.call, head.room + bytes);
  }
  op.wire_bytes += head.bytes + bytes;
}

void InterhostGroup::send_written(progress::Operation& op, net::Channel& channel, int64_t bytes) {
  context_->endpoint->send(channel, op.call, bytes);
  op.wire_bytes += bytes;
}

void InterhostGroup::take_message(progress::Operation& op, net::Channel& channel, int peer,
                                  Bytes to, int64_t bytes, MessagePath path) {
  if (path.is_zero_copy) return channel.consume_piece();
  check_message(op, channel, peer);
  reduce::copy_bytes(to, channel.front_bytes(), bytes);
  channel.take();
}

// The next message may begin while this one leaves.
progress::Program InterhostGroup::run_send(progress::Operation& op, net::Channel& channel,
                                           ConstBytes in) {
  const int to = op.call.peer;
  const int64_t bytes = op.call.bytes();
  const MessagePath path = path_of(bytes);
  // Otherwise a receiver that makes another call would not learn of this one.
  if (path.is_zero_copy && channel.advertised().load() == channel.pieces_sent())
    channel.report_waiting(op.call);
  if (bytes <= kCopied && channel.coalesces() &&
      context_->endpoint->coalesce(channel, op.call, in, bytes)) {
    op.wire_bytes += bytes;
    op.completes_when(channel.submitted(), channel.sent(), to);
    co_return;
  }
  int64_t at = 0;
  do {
    const int64_t n = std::min(path.most, bytes - at);
    co_await may_send(op, channel, to, path);
    while (!has_room(channel, n)) co_await room_made(op, to);
    send_message(op, channel, to, in + at, n, path);
    at += path.most;
  } while (at < bytes);
  if (bytes > kCopied) op.completes_when(channel.zero_copy_done(), channel.zero_copy_sent(), to);
}

progress::Program InterhostGroup::run_recv(progress::Operation& op, net::Channel& channel,
                                           Bytes out) {
  const int from = op.call.peer;
  const int64_t bytes = op.call.bytes();
  const MessagePath path = path_of(bytes);
  if (channel.waiting().number == op.call.number) check(op, channel.waiting(), from);
  if (path.is_zero_copy && channel.arrived().load() > channel.taken() &&
      channel.front().number == op.call.number)
    check_message(op, channel, from);
  int64_t at = 0;
  do {
    co_await message_of(op, channel, from, path);
    take_message(op, channel, from, out + at, std::min(path.most, bytes - at), path);
    at += path.most;
  } while (at < bytes);
}

}  // namespace smp::groups
