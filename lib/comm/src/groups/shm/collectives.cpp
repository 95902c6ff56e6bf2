#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "groups/shm/steps.h"
#include "reduce/copy.h"
#include "reduce/reduce.h"

// The collectives of a group inside a host. Words: a *step* moves one chunk of each rank's data; a
// *part* is a rank's share of a reduced buffer; a *piece* is the data for one reader in a slot of a
// reduction, or in two slots that are written at once.
//
// A sum of several steps prefetches its farthest input. In a call that fills the cache, that is the
// rank's own part, unless the rank has just copied the part to a slot. Otherwise it is a peer's
// slot.
//
// No program completes before it has seen the same call at every peer. A rank can therefore be at
// most one call ahead of another, which bounds the number of call entries that are kept.
namespace smp::groups {
namespace {

// A reduce_scatter writes two slots at once if one slot has too little room for the parts of all
// ranks, or for this many bytes of each. A turn of ranks that share a CPU costs 2 us, and larger
// pieces need fewer turns (see docs/lab/collective-tuning.md).
constexpr int64_t kLargePiece = 128 << 10;

// The length of chunks, in whole lines and at most `most`, that divides `bytes` into as few and as
// equal chunks as possible.
int64_t even_chunk(int64_t bytes, int64_t most) {
  constexpr int64_t line = int64_t(segment::kLineBytes);
  const int64_t chunks = std::max<int64_t>(1, progress::div_up(bytes, most));
  return std::max<int64_t>(1, progress::div_up(bytes, chunks * line)) * line;
}

}  // namespace

// Shows the call to the peers, which compare it with their own.
void Group::show_call(progress::Operation& op) {
  if (std::exchange(op.posted, true)) return;
  segment::CallEntry& entry = block_.call(rank_, op.call.number);
  progress::write(entry, op.call, op.print);
  entry.number.store(op.call.number, std::memory_order_release);
}

// Begins a program that publishes slots. Wakes no peer, because peers wait for the first slot. The
// cache line of the slot counter is in the cache of the peer that read it last. It is fetched while
// the slot is written.
void Group::begin(progress::Operation& op, int slots_at_once) {
  show_call(op);
  before_ = published_;
  at_once_ = uint64_t(slots_at_once);
  reduce::prefetch_for_write(reinterpret_cast<std::byte*>(&block_.control(rank_).published),
                             segment::kLineBytes);
}

// Shows the call and wakes peers. A rank that waits for a call waits for all ranks, so only the
// last rank wakes others. In a broadcast ranks wait for the root only. Other counters wake the
// peers that wait for them.
void Group::post(progress::Operation& op) {
  if (op.posted) return;
  show_call(op);
  std::atomic<uint64_t>& number = block_.call(rank_, op.call.number).number;
  number.fetch_add(0);  // ordered before the loads of `sleeper`
  if (op.call.op == mesh::CollectiveOp::kBroadcast) {
    ring_peers();
  } else if (all_have_called(op)) {
    if (op.call.op == mesh::CollectiveOp::kReduceScatter && !op.is_for_thread()) {
      ring_waiting_peers();
    } else {
      ring_peers();
    }
  }
  note(op);
}

bool Group::all_have_called(const progress::Operation& op) const {
  for (int step = 1; step < size_; ++step)
    if (block_.call(next(step), op.call.number).number.load() < op.call.number) return false;
  return true;
}

// If the calls of two ranks differ, the rank that fewer ranks agree with is to blame. In a group of
// two it is the higher rank. Gives the other ranks a moment to make their calls.
int Group::odd_one_out(const progress::Operation& op, int peer) const {
  using std::chrono::steady_clock;
  const uint64_t number = op.call.number, mine = op.print;
  const uint64_t theirs = block_.call(peer, number).fingerprint;
  const auto give_up = steady_clock::now() + std::chrono::milliseconds(200);
  int like_mine = 0, like_theirs = 0;
  for (int p = 0; p < size_; ++p) {
    const segment::CallEntry& entry = block_.call(p, number);
    while (entry.number.load() != number && steady_clock::now() < give_up) sched_yield();
    if (entry.number.load() != number) continue;
    like_mine += entry.fingerprint == mine;
    like_theirs += entry.fingerprint == theirs;
  }
  if (like_mine == like_theirs) return std::max(global(rank_), global(peer));
  return global(like_mine > like_theirs ? peer : rank_);
}

void Group::check_call(const progress::Operation& op, int peer) const {
  const segment::CallEntry& entry = block_.call(peer, op.call.number);
  if (entry.fingerprint == op.print) return;
  const progress::Call theirs = progress::call_in(entry, op.call.number);
  auto text = [this](const progress::Call& call) {
    return progress::describe(call, call.peer < 0 ? -1 : global(call.peer));
  };
  throw progress::mismatch(odd_one_out(op, peer), global(rank_), text(op.call), global(peer),
                           text(theirs));
}

// Checks that the next slot of `peer` belongs to the same call as this rank's. A peer that has
// begun this call has taken all slots of earlier calls.
void Group::check_slot(const progress::Operation& op, int peer) {
  const auto& print =
      block_.control(peer).published.prints[consumed_[size_t(peer)] % mesh::kRingSlots];
  if (print.load(std::memory_order_relaxed) != op.print) check_call(op, peer);
  uint64_t& known = taken_[size_t(peer)];
  known = std::max(known, before_);
}

// Whether a rank that has written and taken these numbers of steps writes another step. It is at
// most one step ahead, and only if it need not wait for that. The memory of more steps would not
// stay in a CPU's own cache.
bool Group::writes_next(int64_t written, int64_t taken) {
  if (written != taken + 1) return written == taken;
  for (int step = 1; step < size_; ++step)
    if (!has_taken(next(step), slots_needed())) return false;
  return true;
}

// The number of slots that a reader must have taken before the next one is written. A slot that a
// call skips, to begin with an even number, counts as taken with the first slot of that call.
uint64_t Group::slots_needed() const {
  const uint64_t then = place_of(published_) + at_once_;
  if (then <= uint64_t(mesh::kRingSlots)) return 0;
  const uint64_t needed = then - uint64_t(mesh::kRingSlots);
  return needed == place_of(before_) ? before_ : needed;
}

// Reads the reader's counter, which moves with every slot, only when it must.
bool Group::has_taken(int reader, uint64_t slots) {
  uint64_t& known = taken_[size_t(reader)];
  if (known < slots) known = block_.taken(rank_, reader).value.load();
  return known >= slots;
}

void Group::count_slot(progress::Operation& op, int64_t wire_bytes) {
  segment::Published& ring = block_.control(rank_).published;
  ring.prints[published_ % mesh::kRingSlots].store(op.print, std::memory_order_relaxed);
  published_ = place_of(published_) + at_once_;
  ring.value.store(published_);
  op.wire_bytes += wire_bytes;
}

void Group::publish(progress::Operation& op, int64_t wire_bytes) {
  count_slot(op, wire_bytes);
  ring_peers();
  note(op);
}

uint64_t Group::count_taken(int peer) {
  uint64_t& consumed = consumed_[size_t(peer)];
  return consumed = place_of(consumed) + at_once_;
}

void Group::take(int peer) {
  block_.taken(peer, rank_).value.store(count_taken(peer));
  context_->job->ring(global(peer), global(rank_));
}

// Takes the only slot of a call. The writer reuses the slot only some calls later, so a release
// store is enough. The store may miss a writer that falls asleep at this moment, but this rank's
// next call wakes that writer too.
void Group::take_only(int peer) {
  block_.taken(peer, rank_).value.store(count_taken(peer), std::memory_order_release);
  context_->job->ring(global(peer), global(rank_));
}

void Group::take_all(bool is_only) {
  for (int step = 1; step < size_; ++step) is_only ? take_only(next(step)) : take(next(step));
}

progress::Program Group::run_barrier(progress::Operation& op) {
  post(op);
  co_await called_by_all(op);
  for (int step = 1; step < size_; ++step) check_call(op, next(step));
}

progress::Program Group::run_all_gather(progress::Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes();
  const int64_t most = mesh::kSlotBytes,
                steps = std::max<int64_t>(1, progress::div_up(bytes, most));
  const ResultWrites::StorePolicy results = result_writes(op.call, staged_gathers_);
  const Bytes own = out + bytes * rank_;
  // A rank that has a CPU to itself and also copies its own part does not write ahead. The memory
  // of two such steps does not stay in the CPU's own cache until the peers read the slots.
  const bool is_ahead = own == in || !context_->engine.has_spare_cpus();
  begin(op);
  int64_t made = 0;
  for (int64_t taken = 0; taken < steps; ++taken) {
    while (made < steps && (made == taken || (is_ahead && writes_next(made, taken)))) {
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      const int64_t at = made++ * most, n = std::min(most, bytes - at);
      write_slot(op, writes_[size_t(rank_)], my_slot(n), in + at, n);
      publish(op, n * (size_ - 1));
      op.is_given = steps == 1;
      if (steps == 1)
        reduce::prefetch_for_write(my_slot(n), n);  // the next call is likely to be alike
      reduce::copy_bytes(own + at, in + at, n, results.non_temporal);
    }
    const int64_t at = taken * most, n = std::min(most, bytes - at);
    for (int step = 1; step < size_; ++step) {
      const int p = next(step);
      co_await slot_of(op, p);
      if (taken == 0) check_slot(op, p);
      results.make(n, [&] {
        reduce::copy_bytes(out + bytes * p + at, peer_slot(p, n), n, results.non_temporal);
      });
      steps == 1 ? take_only(p) : take(p);
    }
  }
}

progress::Program Group::run_broadcast(progress::Operation& op, Bytes buffer) {
  const int64_t bytes = op.call.bytes();
  const int root = op.call.peer;
  post(op);
  if (rank_ != root) {
    co_await called_by(op, root);
    check_call(op, root);
  }
  const bool is_large = fills_cache(op.call);
  for (int64_t at = 0; at < bytes; at += mesh::kSlotBytes) {
    const int64_t n = std::min(mesh::kSlotBytes, bytes - at);
    if (rank_ == root) {
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      write_slot(op, writes_[size_t(rank_)], my_slot(n), buffer + at, n);
      publish(op, n * (size_ - 1));
    } else {
      co_await slot_of(op, root);
      reduce::copy_bytes(buffer + at, peer_slot(root, n), n, is_large);
      take(root);
    }
  }
  for (int step = 1; step < size_; ++step) {
    co_await called_by(op, next(step));
    check_call(op, next(step));
  }
}

// Writes chunk `step` of every peer's part of the `count` elements of `in` to the next slot.
void Group::publish_pieces(progress::Operation& op, ConstBytes in, int64_t count, int64_t chunk,
                           int64_t step) {
  const int64_t element = bytes_of(op.call.dtype), at = step * chunk;
  Bytes const slot =
      place_in(rank_, published_, std::min(chunk, mesh::part_size(count, size_, 0)) * element,
               piece_bytes());
  int64_t wire = 0;
  for (int distance = 1; distance < size_; ++distance) {
    const int p = next(distance);
    const int64_t n =
        std::clamp<int64_t>(mesh::part_size(count, size_, p) - at, 0, chunk) * element;
    write_slot(op, writes_[size_t(p)], slot + (distance - 1) * piece_bytes(),
               in + (mesh::part_begin(count, size_, p) + at) * element, n);
    wire += n;
  }
  publish(op, wire);
}

// This rank's piece in the next slot of `peer`.
Group::ConstBytes Group::piece_from(int peer, int64_t bytes) const {
  const int distance = (rank_ - peer + size_) % size_;
  return place_in(peer, consumed_[size_t(peer)], bytes, piece_bytes()) +
         (distance - 1) * piece_bytes();
}

// Sums this rank's part of all inputs to `out`. It is also the first half of an all_reduce, whose
// parts differ by at most one element.
progress::Program Group::run_reduce_scatter(progress::Operation& op, ConstBytes in, Bytes out) {
  const int64_t element = bytes_of(op.call.dtype), count = op.call.count;
  const int64_t longest = mesh::part_size(count, size_, 0),
                part = mesh::part_size(count, size_, rank_);
  const bool by_two = mesh::kSlotBytes / (size_ - 1) < std::min(kLargePiece, longest * element);
  begin(op, by_two ? 2 : 1);
  const int64_t chunk = even_chunk(longest * element, piece_bytes()) / element;
  const int64_t steps = std::max<int64_t>(1, progress::div_up(longest, chunk));
  const bool is_half = op.call.op == mesh::CollectiveOp::kAllReduce;
  const ConstBytes own = in + mesh::part_begin(count, size_, rank_) * element;
  const bool is_large = fills_cache(op.call, own == out);
  const ResultWrites::StorePolicy results = is_half || own == out
                                                ? ResultWrites::StorePolicy{}
                                                : result_writes(op.call, staged_scatters_);
  const int far = is_large ? rank_ : steps > 1 ? next(1) : -1;
  std::vector<ConstBytes>& from = sources_;
  int64_t made = 0;
  for (int64_t taken = 0; taken < steps; ++taken) {
    while (made < steps && writes_next(made, taken)) {
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      publish_pieces(op, in, count, chunk, made++);
      op.is_given = steps == 1 && !is_half;
    }
    const int64_t at = taken * chunk, n = std::clamp<int64_t>(part - at, 0, chunk);
    from[size_t(rank_)] = own + at * element;
    for (int step = 1; step < size_; ++step) {
      const int p = next(step);
      co_await slot_of(op, p);
      if (taken == 0) check_slot(op, p);
      from[size_t(p)] = piece_from(p, std::min(chunk, longest) * element);
    }
    Bytes const to = out + at * element;
    results.make(n * element, [&] {
      reduce::reduce_inputs({&to, 1, from.data(), size_, size_, results.non_temporal, 0, far}, n,
                            op.call.dtype, op.call.reduce_op);
    });
    take_all(steps == 1 && !is_half);
  }
  at_once_ = 1;
  if (is_half) {
    Bytes const whole = out - (own - in);
    op.rest = run_gather_of_parts(op, whole, fills_cache(op.call, in == whole));
  }
}

}  // namespace smp::groups
