#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "copy.h"
#include "looking.h"
#include "reduce.h"
#include "steps.h"

// Collectives whose buffers all ranks can read in place: nothing is staged. A rank's call entry
// says where its buffers lie. Words as in collectives.cpp; what peers read of a rank in one go
// counts as one slot of its ring, though it is not there, so that the counts go on as usual.
//
// A rank returns when its peers have read its buffers. It would return early if it failed, and may
// then free them: a peer that has read them looks once more whether all is well.
namespace smp::shm {
namespace {

constexpr int64_t kChunkBytes = 128 << 10;  // half of it and its sources fit in a CPU's own cache
constexpr int64_t kLargeBytes = 32 << 20;   // touched by all ranks, which must agree on the chunks
constexpr int64_t kLargeChunkBytes = 512 << 10;  // ranks that share CPUs stay within a few of them

}  // namespace

// Reads in place if every rank's buffers allow it, for which it waits for their calls.
Program Group::run_direct_or_staged(Operation& op, ConstBytes in, Bytes out) {
  post(op);
  co_await called_by_all(op);
  bool all = true;
  for (int step = 1; step < size_; ++step) {
    check_call(op, next(step));
    all &= block_.call(next(step), op.call.number).symmetric();
  }
  op.rest = all ? direct(op, in, out) : staged(op, in, out);
}

Group::ConstBytes Group::in_of(const Operation& op, int peer) const {
  return seat_->job->at(block_.call(peer, op.call.number).in_at);
}

// Whether no rank writes its result over its own input, which all then read at leisure.
bool Group::are_apart(const Operation& op) const {
  for (int p = 0; p < size_; ++p) {
    const CallEntry& entry = block_.call(p, op.call.number);
    if (std::abs(entry.in_at - entry.out_at) < op.call.bytes()) return false;
  }
  return true;
}

// Whether what was read of `peer` is what it had there; if not, the next look at the group's health
// ends the call.
bool Group::was_whole(const Operation& op, int peer) const {
  const uint64_t closed = block_.control(peer).closed.value.load();
  if (seat_->job->failures() != 0 && failure()) return false;  // which may be why it has left
  if (closed == RankControl::kLeft)
    throw CommError(CommError::Kind::kPeerLost, global(peer),
                    fmt::format("rank {}: {}: rank {} has left the group without completing it",
                                global(rank_), describe(op.call, op.call.peer), global(peer)));
  return closed == RankControl::kOpen;
}

// Chunk by chunk of all ranks: one that another rank has read lately may still be in the cache. Of
// what is larger than it each chunk counts as a slot of its own, so that ranks which share CPUs
// stay together: they read memory once, not each for itself.
Program Group::run_direct_all_gather(Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes();
  const bool is_large = touched_bytes(op.call) >= kLargeBytes, stream = fills_cache(op.call);
  if (!is_large) count_slot(op, bytes * (size_ - 1));
  const int64_t most = is_large ? kLargeChunkBytes : kChunkBytes;
  for (int64_t at = 0; at < bytes; at += most) {
    const int64_t n = std::min(most, bytes - at);
    if (is_large) {
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      publish(op, n * (size_ - 1));
    }
    for (int step = 1; step < size_; ++step) {
      const int p = next(step);
      co_await called_by(op, p);  // at once; a chance for other calls
      if (is_large) co_await slot_of(op, p);
      copy_bytes(out + bytes * p + at, in_of(op, p) + at, n, stream);
      if (is_large && at + n < bytes) take(p);
    }
    copy_bytes(out + bytes * rank_ + at, in + at, n, stream);
  }
  for (int step = 1; step < size_; ++step) {
    const int p = next(step);
    while (!was_whole(op, p)) co_await never(op, p);
    take(p);
  }
  for (int step = 1; step < size_; ++step) co_await all_taken(op, next(step));
}

// Each rank's part is summed by whoever comes first: the rank itself, as soon as it looks, or a
// peer that waits for the sums, which all parts read. So nobody waits for a rank that has called
// but has no CPU. Whoever sums claims the part before, and writes it wherever it shall be: to that
// rank or, in an all_reduce, to all of them, whose inputs may lie there; nobody else touches this
// part of them. Ranks are added in the same order by all.
Program Group::run_direct_sums(Operation& op) {
  op.wire_bytes += wire_bytes(op.call.op, size_, rank_, op.call.count, bytes_of(op.call.dtype));
  const int64_t chunk = kChunkBytes / bytes_of(op.call.dtype);
  if (claim_sum(op, rank_)) {
    const int64_t part = part_size(op.call.count, size_, rank_);
    for (int64_t at = 0; at < part; at += chunk) {
      co_await called_by(op, next(1));  // at once; a chance for other calls
      reduce_part(op, rank_, at, std::min(chunk, part - at));
    }
    sum_done(op, rank_);
  }
  co_await all_summed(op, true);
  for (int step = 1; step < size_; ++step) {
    const int p = next(step);
    if (block_.control(p).summed.value.load() >= op.call.number || !claim_sum(op, p)) continue;
    // In one go: a peer that fails waits until nobody writes to its buffer.
    const int64_t part = part_size(op.call.count, size_, p);
    for (int64_t at = 0; at < part; at += chunk) reduce_part(op, p, at, std::min(chunk, part - at));
    sum_done(op, p);
  }
  co_await all_summed(op, false);
  for (int step = 1; step < size_; ++step) {  // whoever completed it may have left since
    const int p = next(step);
    while (has_given_up(p) && !was_whole(op, p)) co_await never(op, p);
  }
}

bool Group::has_given_up(int peer) const {
  return (block_.control(peer).claimed.value.load() & kGivenUp) != 0;
}

bool Group::claim_sum(const Operation& op, int peer) {
  std::atomic<uint64_t>& claimed = block_.control(peer).claimed.value;
  uint64_t last = claimed.load();
  return (last & kGivenUp) == 0 && number_of_claim(last) < op.call.number &&
         claimed.compare_exchange_strong(last, claim_of(op.call.number, rank_));
}

// Elements [at, at + count) of the part of `owner`.
void Group::reduce_part(const Operation& op, int owner, int64_t at, int64_t count) {
  const int64_t element = bytes_of(op.call.dtype);
  const int64_t begin = (part_begin(op.call.count, size_, owner) + at) * element;
  sources_.resize(size_t(size_));
  targets_.clear();
  const bool to_all = op.call.op == CollectiveOp::kAllReduce;
  auto out_at = [&](int p) { return seat_->job->at(block_.call(p, op.call.number).out_at); };
  for (int p = 0; p < size_; ++p) {
    sources_[size_t(p)] = in_of(op, p) + begin;
    // What has given up since the part was claimed waits until it is done.
    if (to_all && !has_given_up(p)) targets_.push_back(out_at(p) + begin);
  }
  if (!to_all && !has_given_up(owner)) targets_.push_back(out_at(owner) + at * element);
  if (targets_.empty()) return;
  // What lies where it was read is in the cache already.
  const bool stream =
      fills_cache(op.call) && targets_.front() != sources_[size_t(to_all ? 0 : owner)];
  reduce_inputs({targets_.data(), int(targets_.size()), sources_.data(), size_, size_, stream},
                count, op.call.dtype, op.call.reduce_op);
}

// The last one rings.
void Group::sum_done(const Operation& op, int owner) {
  block_.control(owner).summed.value.store(op.call.number);
  for (int p = 0; p < size_; ++p)
    if (block_.control(p).summed.value.load() < op.call.number) return;
  if (op.is_for_thread()) return ring_peers();
  ring_waiting_peers();
}

// This rank gives up, and may then free its buffers: nobody shall write to them any more. A peer
// that is at it needs a moment; one that has died or is stopped in it is not waited for.
void Group::close_sums(const Operation& op) {
  using std::chrono::steady_clock;
  auto claimed = [this](int owner) -> std::atomic<uint64_t>& {
    return block_.control(owner).claimed.value;
  };
  auto is_held = [&](int owner) {
    const uint64_t claim = claimed(owner).load();
    return number_of_claim(claim) == op.call.number &&
           block_.control(owner).summed.value.load() < op.call.number &&
           seat_->job->board(global(holder_of_claim(claim))).died.load() == 0;
  };
  claimed(rank_).fetch_or(kGivenUp);
  // It sums no more itself: its claim becomes one of an earlier call.
  if (is_held(rank_) && holder_of_claim(claimed(rank_).load()) == rank_)
    claimed(rank_).fetch_sub(claim_of(1, 0));
  const bool to_all = op.call.op == CollectiveOp::kAllReduce;
  constexpr std::chrono::seconds kMoment{1};
  Looking looking;
  const auto may_go_on = [&](int owner) {
    looking.look(steady_clock::now());
    const int holder = global(holder_of_claim(claimed(owner).load()));
    const auto state = seat_->engine.state(holder);
    return looking.looked_for() < kMoment &&
           !is_stopped_by(state, false, looking.looked_for(), kMoment).value_or(false);
  };
  for (int p = 0; p < size_; ++p)
    while ((to_all || p == rank_) && is_held(p) && may_go_on(p)) sched_yield();
}

// Each rank sums everything that all ranks have.
Program Group::run_direct_one_shot(Operation& op, ConstBytes in, Bytes out) {
  const int64_t element = bytes_of(op.call.dtype), chunk = kChunkBytes / element;
  std::vector<ConstBytes>& from = sources_;
  count_slot(op, op.call.bytes() * (size_ - 1));
  for (int64_t at = 0; at < op.call.count; at += chunk) {
    co_await called_by(op, next(1));  // at once; a chance for other calls
    for (int p = 0; p < size_; ++p)
      from[size_t(p)] = (p == rank_ ? in : in_of(op, p)) + at * element;
    reduce_inputs(out + at * element, from.data(), size_, std::min(chunk, op.call.count - at),
                  op.call.dtype, op.call.reduce_op, size_);
  }
  for (int step = 1; step < size_; ++step) {
    const int p = next(step);
    while (!was_whole(op, p)) co_await never(op, p);
    take(p);
  }
  for (int step = 1; step < size_; ++step) co_await all_taken(op, next(step));
}

}  // namespace smp::shm
