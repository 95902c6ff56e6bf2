#include <algorithm>
#include <utility>

#include "groups/interhost/interhost_steps.h"

// Checks that the hosts of a group make the same calls. Each message says which call it belongs to,
// and before a call with a root the root's host and all other hosts greet each other. The rank that
// learns of a different call names both calls.
namespace smp::groups {

void InterhostGroup::check_message(const progress::Operation& op, const net::Channel& channel,
                                   int peer) {
  check(op, channel.front(), peer);
}

void InterhostGroup::check(const progress::Operation& op, const net::MessageHeader& header,
                           int peer) {
  if (header.fingerprint == progress::fingerprint(op.call) && header.number == op.call.number) {
    uint64_t& heard = heard_[size_t(peer / per_host_)];
    if (&op.lane == &collectives_ && header.number > heard) {
      heard = header.number;
      progress::store(context_->job->board(global(peer)).last_call, op.call);
    }
    return;
  }
  const progress::Call* const earlier =
      &op.lane != &collectives_ ? nullptr : contradicted_by(header);
  throw mismatch_with(earlier == nullptr ? op.call : *earlier, header);
}

// The call of this rank that differs from what a peer has called in its place; null if none is
// known. A rank may end a call before it learns that a peer has made another call.
const progress::Call* InterhostGroup::contradicted_by(const net::MessageHeader& header) const {
  for (const progress::Call* own : {&current_, &previous_})
    if (header.number == own->number && header.fingerprint != progress::fingerprint(*own))
      return own;
  return nullptr;
}

comm::CommError InterhostGroup::mismatch_with(const progress::Call& own,
                                              const net::MessageHeader& header) const {
  auto text = [this](const progress::Call& call) {
    return progress::describe(call, call.peer < 0 ? -1 : global(call.peer));
  };
  const int self = global(rank_), other = header.from;
  return progress::mismatch(std::max(self, other), self, text(own), other,
                            text(progress::call_in(header, header.number)));
}

// The message may belong to another call or another root. The rank that this rank waits for may
// never learn of that.
void InterhostGroup::on_message(const net::MessageHeader& header) {
  for (size_t host = 0; host < rails_.size() && header.kind == net::MessageHeader::kReceiveReady;
       ++host) {
    if (!rails_[host] || rails_[host]->peer() != header.from || heard_[host] >= header.number)
      continue;
    heard_[host] = header.number;
    progress::store(context_->job->board(header.from).last_call,
                    progress::call_in(header, header.number));
  }
  const progress::Call* const own = contradicted_by(header);
  if (own == nullptr || failure()) return;
  const comm::CommError error = mismatch_with(*own, header);
  context_->job->fail(context_->job->failure(),
                      {error.kind, error.culprit, global(rank_), error.what()});
}

// A message of send that does not match the recv at its turn. The sender checks exposed memory.
void InterhostGroup::sent_by(const Pair& pair, const net::MessageHeader& header) {
  if (header.kind == net::MessageHeader::kReceiveReady || pair.recvs.operations.empty() ||
      failure())
    return;
  const progress::Call& own = pair.recvs.operations.front()->call;
  if (header.number != own.number || header.fingerprint == progress::fingerprint(own)) return;
  const comm::CommError error = mismatch_with(own, header);
  context_->job->fail(context_->job->failure(),
                      {error.kind, error.culprit, global(rank_), error.what()});
}

// Before a call: messages that have arrived for the call must belong to it. In a call with a root,
// the root's host and every other host tell each other their call, on all rails. So if two hosts
// name different roots, one host learns of it: the host of a root, or a host that a peer takes for
// the root's host.
progress::Program InterhostGroup::run_greeting(progress::Operation& op) {
  previous_ = std::exchange(current_, op.call);
  for (int host = 0; host < hosts_; ++host) {
    if (host == host_) continue;
    const net::Channel& channel = rail(host);
    const bool has_message = channel.arrived().load() > channel.taken();
    const bool is_invited = channel.advertised().load() > channel.pieces_sent();
    for (const net::MessageHeader* header : {has_message ? &channel.front() : nullptr,
                                             is_invited ? &channel.advertisement() : nullptr})
      if (header != nullptr)
        if (const progress::Call* own = contradicted_by(*header))
          throw mismatch_with(*own, *header);
  }
  if (op.call.peer < 0) co_return;
  const int root_host = op.call.peer / per_host_;
  auto meets = [&](int host) { return host == root_host || host_ == root_host; };
  for (int step = 1; step < hosts_; ++step) {
    const int host = net::send_to(host_, step, hosts_), peer = member(host, place_);
    if (!meets(host)) continue;
    co_await may_send(op, rail(host), peer);
    while (!has_room(rail(host), 0)) co_await room_made(op, peer);
    send_message(op, rail(host), peer, nullptr, 0);
  }
  for (int step = 1; step < hosts_; ++step) {
    const int host = net::take_from(host_, step, hosts_), peer = member(host, place_);
    if (!meets(host)) continue;
    co_await message_of(op, rail(host), peer);
    check_message(op, rail(host), peer);
    rail(host).take();
  }
}

}  // namespace smp::groups
