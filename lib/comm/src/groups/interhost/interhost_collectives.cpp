#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "groups/interhost/interhost_steps.h"
#include "net/exchange_schedule.h"
#include "reduce/copy.h"
#include "reduce/reduce.h"

// The collectives of a group between hosts. Words: the *rail* of host h carries messages between
// this rank and the member of host h with the same place there; a *block* is the part of a buffer
// that the members of one host own, a *piece* the part of a block that one member owns; a *partial*
// is the sum of a piece over the members of one host. Sums run in rank order inside a host, then in
// the order of the hosts.
//
// All ranks send and take in the same order on each rail, and have room for two messages more than
// they have taken. So ranks cannot wait in a circle.
namespace smp::groups {
namespace {

// The smallest part that a member passes on while more of the data arrives: enough to be worth
// waking the other members.
constexpr int64_t kHandOnBytes = 4 << 20;

}  // namespace

std::string InterhostGroup::step_label(const progress::Operation& op) const {
  const int root = op.call.peer < 0 ? -1 : global(op.call.peer);
  return progress::kStepMark + progress::describe(op.call, root);
}

void InterhostGroup::started(progress::Operation& op, const comm::WorkPtr& step, bool is_indirect) {
  progress::Operation& inner = *static_cast<progress::WorkHandle&>(*step).operation();
  inner.tally = &steps_done_;
  inner.timeout = op.timeout;
  inner.is_indirect = is_indirect || op.call.peer >= 0;  // the members have greeted the root's host
  ++steps_started_;
  const progress::Call& call = inner.call;
  op.wire_bytes += mesh::wire_bytes(call.op, per_host_, place_, call.count, bytes_of(call.dtype),
                                    call.peer < 0 ? 0 : call.peer);
}

// Uses the fastest exchange (exchange.h). Members of the host get a part by a step inside the host
// as soon as its last message has arrived.
progress::Program InterhostGroup::run_exchange(progress::Operation& op, Parts parts,
                                               progress::Program then) {
  const net::Exchange exchange = context_->topology.exchange.choice(hosts_, parts.bytes);
  // A message of several parts is assembled in memory of the endpoint.
  const MessagePath path =
      exchange == net::Exchange::kDoubling ? MessagePath() : path_of(parts.bytes);
  const net::ExchangeSchedule steps(exchange, host_, hosts_, parts.bytes, path.most);
  const std::string label = step_label(op);
  auto part = [&](int host) { return parts.first + host * parts.stride; };
  auto hand_on = [&](int host, ConstBytes from) {
    started(op,
            local_->all_gather(from, part(host) - place_ * parts.bytes, op.call.count,
                               op.call.dtype, label),
            host != host_);
  };
  if (parts.are_for_members) {
    hand_on(host_, parts.own);
  } else {
    reduce::copy_bytes(part(host_), parts.own, parts.bytes);
  }
  for (int64_t i = 0; path.is_zero_copy && i < steps.size(); ++i) {
    const net::ExchangeStep step = steps[i];
    rail(step.from).expect(op.call, part(step.taken) + step.at, step.bytes);
  }
  for (int step = 1; step < hosts_; ++step) rail(net::take_from(host_, step, hosts_)).advertise();
  for (int64_t i = 0; i < steps.size() + steps.lead(); ++i) {
    if (i < steps.size()) {
      const net::ExchangeStep step = steps[i];
      net::Channel& channel = rail(step.to);
      const int peer = member(step.to, place_);
      op.is_indirect = steps.forwards();
      co_await may_send(op, channel, peer, path);
      while (!has_room(channel, step.bytes)) co_await room_made(op, peer);
      auto source = [&](int host) { return host == host_ ? parts.own : part(host); };
      if (exchange == net::Exchange::kDoubling) {
        const Bytes message = context_->endpoint->payload();
        net::visit_parts(step, step.sent, hosts_, parts.bytes,
                         [&](int host, int64_t offset, int64_t bytes, int64_t at) {
                           reduce::copy_bytes(message + at, source(host) + offset, bytes);
                         });
        send_written(op, channel, step.bytes);
      } else {
        send_message(op, channel, peer, source(step.sent) + step.at, step.bytes, path);
      }
    }
    if (i >= steps.lead()) {
      const net::ExchangeStep step = steps[i - steps.lead()];
      net::Channel& channel = rail(step.from);
      const int peer = member(step.from, place_);
      op.is_indirect = step.is_forwarded;
      co_await message_of(op, channel, peer, path);
      if (!path.is_zero_copy) check_message(op, channel, peer);
      net::visit_parts(step, step.taken, hosts_, parts.bytes,
                       [&](int host, int64_t offset, int64_t bytes, int64_t at) {
                         if (!path.is_zero_copy)
                           reduce::copy_bytes(part(host) + offset, channel.front_bytes() + at,
                                              bytes);
                         const bool is_last = offset + bytes == parts.bytes;
                         if (parts.are_for_members && is_last) hand_on(host, part(host));
                       });
      path.is_zero_copy ? channel.consume_piece() : channel.take();
    }
  }
  for (int step = 1; step < hosts_; ++step)
    co_await zero_copies_done(op, net::send_to(host_, step, hosts_));
  co_await all_steps_done(op);
  op.is_indirect = true;  // other members of the host may not have finished
  op.rest = std::move(then);
}

progress::Program InterhostGroup::run_barrier(progress::Operation& op) {
  if (local_) {
    started(op, local_->barrier(step_label(op)));
    co_await all_steps_done(op);
  }
  op.rest = run_exchange(op, Parts(), progress::Program());
}

// Every rank gets the inputs of all ranks and sums them itself, in rank order.
progress::Program InterhostGroup::run_one_shot(progress::Operation& op, ConstBytes in, Bytes out,
                                               int64_t count) {
  const int64_t bytes = count * bytes_of(op.call.dtype);
  scratch_.resize(size_t(bytes * hosts_));
  op.rest = run_exchange(op, {scratch_.data(), bytes, bytes, in},
                         run_sum_of_all(op, scratch_.data(), out, count));
  co_return;
}

// `all` has the inputs of the ranks at this rank's place, by host.
progress::Program InterhostGroup::run_sum_of_all(progress::Operation& op, ConstBytes all, Bytes out,
                                                 int64_t count) {
  const int64_t bytes = count * bytes_of(op.call.dtype);
  if (local_) {
    more_scratch_.resize(size_t(bytes * size_));
    started(
        op,
        local_->all_gather(all, more_scratch_.data(), bytes * hosts_, DType::kU8, step_label(op)),
        op.is_indirect);
    co_await all_steps_done(op);
    all = more_scratch_.data();  // by place, then by host
  }
  std::vector<ConstBytes> from;
  for (int r = 0; r < size_; ++r)
    from.push_back(all + ((r % per_host_) * hosts_ + r / per_host_) * bytes);
  reduce::reduce_inputs(out, from.data(), size_, count, op.call.dtype, op.call.reduce_op, size_);
}

// The members of a host sum the blocks of the other hosts first, in the order of sending. If blocks
// are longer than a message, the first block is on its rail while the next blocks and the own block
// are summed. For shorter blocks the extra wake-ups cost more than the overlap saves.
progress::Program InterhostGroup::run_reduce_scatter(progress::Operation& op, ConstBytes in,
                                                     Bytes out) {
  const progress::Call& call = op.call;
  const bool wide = widens(call, per_host_);
  const DType dtype = wide ? DType::kF32 : call.dtype;
  const int64_t element = bytes_of(dtype), part = call.count / size_;
  const int64_t most = round_bytes(part * element) / element;
  const int64_t rounds = std::max<int64_t>(1, progress::div_up(part, most));
  if (local_) {
    if (wide) more_scratch_.resize(size_t((call.count + most) * element));
    scratch_.resize(size_t(hosts_ * part * element));
    const std::string label = step_label(op);
    const int64_t block = per_host_ * part;
    for (int step = 1; step <= hosts_; ++step) {  // the last step is this host's
      const int host = net::send_to(host_, step, hosts_);
      ConstBytes source = in + host * block * bytes_of(call.dtype);
      if (wide) {
        const Bytes widened = more_scratch_.data() + (most + host * block) * element;
        reduce::widen(reinterpret_cast<float*>(widened), source, block, call.dtype);
        source = widened;
      }
      started(op, local_->reduce_scatter(source, scratch_.data() + host * part * element, block,
                                         dtype, partial_op(call), label));
    }
  }
  const ConstBytes partials = local_ ? scratch_.data() : in;
  std::vector<ConstBytes> from(static_cast<size_t>(hosts_));
  for (int64_t k = 0; k <= rounds; ++k) {
    if (k < rounds) {
      const int64_t begin = k * most, n = std::min(most, part - begin);
      for (int step = 1; step < hosts_; ++step) {
        const int host = net::send_to(host_, step, hosts_), peer = member(host, place_);
        if (local_ && k == 0) co_await steps_done_but(op, rounds > 1 ? hosts_ - step : 0);
        co_await may_send(op, rail(host), peer);
        while (!has_room(rail(host), n * element)) co_await room_made(op, peer);
        send_message(op, rail(host), peer, partials + (host * part + begin) * element, n * element);
      }
    }
    if (k == 0) continue;
    if (local_ && k == 1) co_await all_steps_done(op);
    const int64_t begin = (k - 1) * most, n = std::min(most, part - begin);
    from[size_t(host_)] = partials + (host_ * part + begin) * element;
    for (int step = 1; step < hosts_; ++step) {
      const int host = net::take_from(host_, step, hosts_), peer = member(host, place_);
      co_await message_of(op, rail(host), peer);
      check_message(op, rail(host), peer);
      from[size_t(host)] = rail(host).front_bytes();
    }
    if (wide) {
      reduce::reduce_inputs(more_scratch_.data(), from.data(), hosts_, n, dtype, call.reduce_op,
                            size_);
      reduce::narrow(out + begin * 2, reinterpret_cast<const float*>(more_scratch_.data()), n,
                     call.dtype);
    } else {
      reduce::reduce_inputs(out + begin * element, from.data(), hosts_, n, dtype, call.reduce_op,
                            size_);
    }
    for (int step = 1; step < hosts_; ++step) rail(net::take_from(host_, step, hosts_)).take();
  }
  for (int step = 1; step < hosts_; ++step)
    co_await zero_copies_done(op, net::send_to(host_, step, hosts_));
}

// Each rank's part goes once to every other host, whose members then share the parts from their
// rails.
progress::Program InterhostGroup::run_all_gather(progress::Operation& op, ConstBytes in,
                                                 Bytes out) {
  const int64_t bytes = op.call.bytes();
  return run_exchange(op, {out + place_ * bytes, bytes * per_host_, bytes, in, local_ != nullptr},
                      progress::Program());
}

// The root's rails carry the data to the hosts, where the member at the root's place passes it on.
// Long data is passed on in parts, while the next parts arrive.
progress::Program InterhostGroup::run_broadcast(progress::Operation& op, Bytes buffer) {
  const int64_t bytes = op.call.bytes(), part = kHandOnBytes;
  const int64_t parts = std::max<int64_t>(1, progress::div_up(bytes, part));
  const int root = op.call.peer, root_host = root / per_host_, root_place = root % per_host_;
  const bool is_rail = place_ == root_place, takes = is_rail && rank_ != root;
  const std::string label = step_label(op);
  int64_t handed_on = 0;
  auto hand_on = [&](int64_t to) {
    for (; local_ && handed_on < to; ++handed_on) {
      const int64_t begin = handed_on * part, n = std::min(part, bytes - begin);
      started(op, local_->broadcast(buffer + begin, n / bytes_of(op.call.dtype), op.call.dtype,
                                    root_place, label));
    }
  };
  if (!takes) hand_on(parts);
  if (is_rail) {
    const MessagePath path = path_of(bytes);
    if (path.is_zero_copy && takes) {
      rail(root_host).expect(op.call, buffer, bytes);
      rail(root_host).advertise();
    }
    int64_t at = 0;
    do {
      const int64_t n = std::min(path.most, bytes - at);
      if (rank_ == root) {
        for (int step = 1; step < hosts_; ++step) {
          const int host = net::send_to(host_, step, hosts_), peer = member(host, place_);
          co_await may_send(op, rail(host), peer, path);
          while (!has_room(rail(host), n)) co_await room_made(op, peer);
          send_message(op, rail(host), peer, buffer + at, n, path);
        }
      } else {
        co_await message_of(op, rail(root_host), root, path);
        take_message(op, rail(root_host), root, buffer + at, n, path);
      }
      at += path.most;
      if (takes && at < bytes) hand_on(at / part);
    } while (at < bytes);
    if (takes) hand_on(parts);
    for (int step = 1; step < hosts_; ++step)
      co_await zero_copies_done(op, net::send_to(host_, step, hosts_));
  }
  co_await all_steps_done(op);
}

}  // namespace smp::groups
