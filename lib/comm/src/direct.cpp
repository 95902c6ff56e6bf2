#include <sched.h>

#include <algorithm>
#include <chrono>

#include "copy.h"
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

}  // namespace

// Reads in place if every rank's buffers allow it, for which it waits for their calls.
Program Group::run_direct_or_staged(Operation& op, Program direct, Program staged) {
  post(op);
  co_await called_by_all(op);
  bool all = true;
  for (int step = 1; step < size_; ++step) {
    check_call(op, next(step));
    all &= block_.call(next(step), op.call.number).symmetric();
  }
  op.rest = all ? std::move(direct) : std::move(staged);
}

Group::ConstBytes Group::in_of(const Operation& op, int peer) const {
  return seat_->job->at(block_.call(peer, op.call.number).in_at);
}

Group::ConstBytes Group::out_of(const Operation& op, int peer) const {
  return seat_->job->at(block_.call(peer, op.call.number).out_at);
}

// Everything that peers may read now counts as one more slot.
void Group::count_slot(Operation& op, int64_t wire_bytes) {
  block_.control(rank_).published.value.store(++published_);
  op.wire_bytes += wire_bytes;
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

Program Group::run_direct_all_gather(Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes();
  const bool stream = bytes * size_ > kStreamBytes;
  count_slot(op, bytes * (size_ - 1));
  for (int step = 1; step <= size_; ++step) {  // its own part last, while the others still read
    const int p = next(step);
    const ConstBytes from = p == rank_ ? in : in_of(op, p);
    for (int64_t at = 0; at < bytes; at += kChunkBytes) {
      co_await called_by(op, p);  // at once; a chance for other calls
      copy_bytes(out + bytes * p + at, from + at, std::min(kChunkBytes, bytes - at), stream);
    }
    if (p == rank_) continue;
    while (!was_whole(op, p)) co_await never(op, p);
    take(p);
  }
  for (int step = 1; step < size_; ++step) co_await all_taken(op, next(step));
}

// Each rank's part is summed by whoever comes first: the rank itself, as soon as it looks, or a
// peer that waits for its own buffer, which all parts read. So nobody waits for a rank that has
// called but has no CPU. Whoever sums claims the part before; ranks are added in the same order by
// all.
Program Group::run_direct_reduce_scatter(Operation& op) {
  const int64_t element = bytes_of(op.call.dtype), part = op.call.count / size_;
  const int64_t chunk = kChunkBytes / element;
  op.wire_bytes += part * (size_ - 1) * element;
  if (claim_sum(op, rank_)) {
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
  return block_.control(peer).claimed.value.load() == kNoMoreClaims;
}

bool Group::claim_sum(const Operation& op, int peer) {
  std::atomic<uint64_t>& claimed = block_.control(peer).claimed.value;
  uint64_t last = claimed.load();
  return number_of_claim(last) < op.call.number &&
         claimed.compare_exchange_strong(last, claim_of(op.call.number, rank_));
}

void Group::reduce_part(const Operation& op, int peer, int64_t at, int64_t count) {
  const int64_t element = bytes_of(op.call.dtype), part = op.call.count / size_;
  sources_.resize(size_t(size_));
  for (int p = 0; p < size_; ++p) sources_[size_t(p)] = in_of(op, p) + (part * peer + at) * element;
  reduce_inputs(seat_->job->at(block_.call(peer, op.call.number).out_at) + at * element,
                sources_.data(), size_, count, op.call.dtype, op.call.reduce_op, size_);
}

// The last one rings.
void Group::sum_done(const Operation& op, int peer) {
  block_.control(peer).summed.value.store(op.call.number);
  for (int p = 0; p < size_; ++p)
    if (block_.control(p).summed.value.load() < op.call.number) return;
  ring_waiting_peers();
}

// This rank gives up, and may then free its buffers: nobody shall write to them any more. A peer
// that is at it needs a moment; one that has died or was stopped in it is not waited for.
void Group::close_sums(const Operation& op) {
  using std::chrono::steady_clock;
  const RankControl& control = block_.control(rank_);
  const uint64_t claim = block_.control(rank_).claimed.value.exchange(kNoMoreClaims);
  const int holder = int(claim % uint64_t(kMaxRanks));
  if (claim == kNoMoreClaims || number_of_claim(claim) < op.call.number || holder == rank_) return;
  const std::atomic<uint32_t>& died = seat_->job->board(global(holder)).died;
  const auto give_up = steady_clock::now() + std::chrono::seconds(1);
  while (control.summed.value.load() < op.call.number && died.load() == 0 &&
         steady_clock::now() < give_up)
    sched_yield();
}

// Each rank sums its part into its own `out`, then takes the sums of the others from theirs. Sums
// are published a chunk at a time but nobody waits for one before its own are done: ranks that are
// equally quick never wait. In place, a rank overwrites what peer p read of it only with p's sum of
// that chunk, so after p has read it.
Program Group::run_direct_all_reduce(Operation& op, ConstBytes in, Bytes out) {
  const int64_t element = bytes_of(op.call.dtype), count = op.call.count;
  const int64_t chunk = kChunkBytes / element;
  const int64_t steps = div_up(part_size(count, size_, 0), chunk);
  const bool stream = op.call.bytes() > kStreamBytes;
  auto begin = [&](int rank, int64_t k) {
    return (part_begin(count, size_, rank) + k * chunk) * element;
  };
  auto length = [&](int rank, int64_t k) {
    return std::clamp<int64_t>(part_size(count, size_, rank) - k * chunk, 0, chunk);
  };
  std::vector<ConstBytes> from(static_cast<size_t>(size_));
  op.wire_bytes += (count - part_size(count, size_, rank_)) * element;
  for (int64_t k = 0; k < steps; ++k) {
    co_await called_by(op, next(1));  // at once; a chance for other calls
    const int64_t n = length(rank_, k);
    for (int p = 0; p < size_; ++p)
      from[size_t(p)] = (p == rank_ ? in : in_of(op, p)) + begin(rank_, k);
    reduce_inputs(out + begin(rank_, k), from.data(), size_, n, op.call.dtype, op.call.reduce_op,
                  size_);
    for (int step = 1; step < size_; ++step)
      while (!was_whole(op, next(step))) co_await never(op, next(step));
    publish(op, n * element * (size_ - 1));
  }
  for (int step = 1; step < size_; ++step) {
    const int p = next(step);
    for (int64_t k = 0; k < steps; ++k) {
      co_await slot_of(op, p);
      copy_bytes(out + begin(p, k), out_of(op, p) + begin(p, k), length(p, k) * element, stream);
      while (!was_whole(op, p)) co_await never(op, p);
      take(p);
    }
  }
  for (int step = 1; step < size_; ++step) co_await all_taken(op, next(step));
}

}  // namespace smp::shm
