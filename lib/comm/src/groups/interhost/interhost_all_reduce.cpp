#include <algorithm>
#include <memory>

#include "groups/interhost/interhost_steps.h"
#include "reduce/copy.h"
#include "reduce/reduce.h"

// A long all_reduce between hosts, in the words of interhost_collectives.cpp. A round has one
// message of elements for each rank. In a round the members of a host sum, the owners exchange
// partials on the rails and sum these, and the sums return on the rails. While a sum travels, the
// host makes the partials of the next round: the messages on a rail are partial 0, partial 1, sum
// 0, partial 2, sum 1, ... The rest are the last elements, fewer than one for each rank. Every
// rank's rest goes to every host, in the message of partial 0, before the partial.
namespace smp::groups {

struct InterhostGroup::AllReduce {
  AllReduce(const progress::Call& call, int size_of_group, int hosts, int per_host,
            ConstBytes input, Bytes output)
      : size(size_of_group),
        in(input),
        out(output),
        wide(widens(call, per_host)),
        dtype(wide ? DType::kF32 : call.dtype),
        narrow_element(bytes_of(call.dtype)),
        element(bytes_of(dtype)),
        rest(call.count % size),
        own(call.count / size),
        most((round_bytes(own * element + rest_room()) - rest_room()) / element),
        rounds(progress::div_up(own, most)),
        from(size_t(hosts)),
        zero_copy_sent(size_t(2 * hosts)) {}

  // In elements: the part of each rank in a round, and its begin in the buffer.
  int64_t length(int64_t round) const { return std::min(most, own - round * most); }
  int64_t at(int64_t round, int rank) const { return round * most * size + rank * length(round); }
  Bytes out_at(int64_t round, int rank) const { return out + at(round, rank) * narrow_element; }
  int64_t rest_at() const { return own * size * narrow_element; }  // in bytes
  int64_t rest_bytes() const { return rest * narrow_element; }
  int64_t rest_room() const {
    return int64_t(segment::end_of_line(size_t(rest_bytes())));
  }  // in a message

  const int size;
  const ConstBytes in;
  const Bytes out;
  const bool wide;
  const DType dtype;  // of partials
  const int64_t narrow_element, element;
  const int64_t rest, own, most, rounds;  // elements of all, of a rank and of its round

  MessagePath path;                      // of sums
  Bytes sum = nullptr;                   // a wide one
  Bytes rests = nullptr;                 // of each host, from the rank at the same place
  std::vector<ConstBytes> from;          // inputs of a sum
  std::vector<uint64_t> zero_copy_sent;  // of the partials of two rounds, by host
  std::string label;
};

progress::Program InterhostGroup::run_all_reduce(progress::Operation& op, ConstBytes in,
                                                 Bytes out) {
  all_reduce_ = std::make_shared<AllReduce>(op.call, size_, hosts_, per_host_, in, out);
  AllReduce& all = *all_reduce_;
  all.label = step_label(op);
  // Partials of two rounds, a sum, the rests of all ranks, and the wide input of two rounds.
  const int64_t partials = local_ ? 2 * hosts_ * mesh::kMessageBytes : 0;
  scratch_.resize(size_t(partials + mesh::kMessageBytes + hosts_ * all.rest_bytes()));
  if (all.wide) more_scratch_.resize(size_t(2 * size_ * mesh::kMessageBytes));
  all.sum = scratch_.data() + partials;
  all.rests = all.sum + mesh::kMessageBytes;
  all.path = path_of(op.call.bytes() / hosts_);
  for (int step = 1; step < hosts_ && all.path.is_zero_copy; ++step) {
    const int host = net::take_from(host_, step, hosts_);
    for (int64_t k = 0; k < all.rounds; ++k)
      rail(host).expect(op.call, all.out_at(k, member(host, place_)),
                        all.length(k) * all.narrow_element);
    rail(host).advertise();
  }
  reduce::copy_bytes(all.rests + host_ * all.rest_bytes(), in + all.rest_at(), all.rest_bytes());
  op.rest = run_partials(op, all, 0);
  co_return;
}

// The partials of a host's members. Partials of round i + 2 reuse the memory of round i.
InterhostGroup::ConstBytes InterhostGroup::partial(const AllReduce& all, int64_t round,
                                                   int host) const {
  if (!local_) return all.in + all.at(round, host) * all.element;
  return scratch_.data() + (round % 2 * hosts_ + host) * mesh::kMessageBytes;
}

void InterhostGroup::start_partials(progress::Operation& op, AllReduce& all, int64_t round) {
  const int64_t n = all.length(round);
  ConstBytes source = all.in + all.at(round, 0) * all.narrow_element;
  if (all.wide) {
    const Bytes widened = more_scratch_.data() + round % 2 * size_ * mesh::kMessageBytes;
    reduce::widen(reinterpret_cast<float*>(widened), source, n * size_, op.call.dtype);
    source = widened;
  }
  for (int host = 0; host < hosts_; ++host)
    started(op,
            local_->reduce_scatter(source + host * per_host_ * n * all.element,
                                   const_cast<Bytes>(partial(all, round, host)), per_host_ * n,
                                   all.dtype, partial_op(op.call), all.label),
            round > 1);
}

// Makes this host's partials of a round, and sends them to their owners.
progress::Program InterhostGroup::run_partials(progress::Operation& op, AllReduce& all,
                                               int64_t round) {
  const int64_t bytes = all.length(round) * all.element;
  const int64_t room = round == 0 ? all.rest_room() : 0;
  uint64_t* const zero_copy_sent = all.zero_copy_sent.data() + round % 2 * hosts_;
  if (local_) {
    // These partials overwrite the partials of two rounds before.
    for (int host = 0; host < hosts_ && round > 1; ++host)
      if (host != host_)
        co_await op.reaches(rail(host).zero_copy_done(), zero_copy_sent[host],
                            member(host, place_));
    start_partials(op, all, round);
    co_await all_steps_done(op);
  }
  for (int step = 1; step < hosts_; ++step) {
    const int host = net::send_to(host_, step, hosts_), peer = member(host, place_);
    co_await may_send(op, rail(host), peer);
    while (!has_room(rail(host), room + bytes)) co_await room_made(op, peer);
    if (room > 0)
      send_behind(op, rail(host), {all.in + all.rest_at(), all.rest_bytes(), room},
                  partial(all, round, host), bytes);
    else
      send_message(op, rail(host), peer, partial(all, round, host), bytes);
    zero_copy_sent[host] = rail(host).zero_copy_sent();
  }
  op.rest = round > 0 ? run_own_sum(op, all, round - 1) : turn(op, all, 0);
}

// Sums this rank's piece and sends the sum to every other host.
progress::Program InterhostGroup::run_own_sum(progress::Operation& op, AllReduce& all,
                                              int64_t round) {
  const int64_t room = round == 0 ? all.rest_room() : 0;
  all.from[size_t(host_)] = partial(all, round, host_);
  for (int step = 1; step < hosts_; ++step) {
    const int host = net::take_from(host_, step, hosts_), peer = member(host, place_);
    co_await message_of(op, rail(host), peer);
    check_message(op, rail(host), peer);
    all.from[size_t(host)] = rail(host).front_bytes() + room;
    if (room > 0)
      reduce::copy_bytes(all.rests + host * all.rest_bytes(), rail(host).front_bytes(),
                         all.rest_bytes());
  }
  const int64_t n = all.length(round), bytes = n * all.narrow_element;
  const Bytes mine = all.out_at(round, rank_);
  reduce::reduce_inputs(all.wide ? all.sum : mine, all.from.data(), hosts_, n, all.dtype,
                        op.call.reduce_op, size_);
  if (all.wide) reduce::narrow(mine, reinterpret_cast<const float*>(all.sum), n, op.call.dtype);
  for (int step = 1; step < hosts_; ++step) rail(net::take_from(host_, step, hosts_)).take();
  for (int step = 1; step < hosts_; ++step) {
    const int host = net::send_to(host_, step, hosts_), peer = member(host, place_);
    co_await may_send(op, rail(host), peer, all.path);
    while (!has_room(rail(host), bytes)) co_await room_made(op, peer);
    send_message(op, rail(host), peer, mine, bytes, all.path);
  }
  op.rest = round > 0 ? run_others_sums(op, all, round - 1) : turn(op, all, 1);
}

progress::Program InterhostGroup::run_others_sums(progress::Operation& op, AllReduce& all,
                                                  int64_t round) {
  const int64_t n = all.length(round), bytes = n * all.narrow_element;
  for (int step = 1; step < hosts_; ++step) {
    const int host = net::take_from(host_, step, hosts_), peer = member(host, place_);
    co_await message_of(op, rail(host), peer, all.path);
    take_message(op, rail(host), peer, all.out_at(round, peer), bytes, all.path);
  }
  for (int host = 0; local_ && host < hosts_; ++host)
    started(op,
            local_->all_gather(all.out_at(round, member(host, place_)),
                               all.out_at(round, member(host, 0)), n, op.call.dtype, all.label));
  if (round + 1 < all.rounds) {
    op.rest = turn(op, all, round + 2);
    co_return;
  }
  co_await all_steps_done(op);
  for (int step = 1; step < hosts_; ++step)
    co_await zero_copies_done(op, net::send_to(host_, step, hosts_));
  if (all.rest > 0) op.rest = run_sum_of_all(op, all.rests, all.out + all.rest_at(), all.rest);
}

// Partials of a round, the own sum of the previous round, the others' sums of the round before.
progress::Program InterhostGroup::turn(progress::Operation& op, AllReduce& all, int64_t k) {
  if (k + 1 < all.rounds) return run_partials(op, all, k + 1);
  return k < all.rounds ? run_own_sum(op, all, k) : run_others_sums(op, all, k - 1);
}

}  // namespace smp::groups
