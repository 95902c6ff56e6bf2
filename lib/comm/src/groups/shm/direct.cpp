#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "groups/shm/steps.h"
#include "reduce/copy.h"
#include "reduce/reduce.h"
#include "waiting/observation.h"

// Direct calls: all ranks can read the buffers in place, and mostly write them, so nothing is
// staged. A rank's call entry says where its buffers lie. Most of these calls are made of parts,
// see run_direct_parts(). In the other calls each rank makes its own output. A read of a peer's
// memory then counts as a slot of that peer's ring, although no slot is written, so that the slot
// counters continue. Words as in collectives.cpp.
//
// A rank returns when its peers do not need its buffers any more. A rank that fails returns early
// and may then free its buffers. So a peer that has read buffers checks afterwards for a failure.
namespace smp::groups {
namespace {

constexpr int64_t kChunkBytes = 128 << 10;  // fits in a CPU's own cache
// Parts of an all_gather up to this size are copied in chunks that stay in the CPU's nearest
// cache.
constexpr int64_t kShortPartBytes = 256 << 10;
constexpr int64_t kShortChunkBytes = 32 << 10;
// An all_gather to private outputs is large if all ranks together touch this many bytes. All ranks
// must agree on the size of chunks.
constexpr int64_t kLargeBytes = 32 << 20;
constexpr int64_t kLargeChunkBytes = 512 << 10;  // ranks that share CPUs stay within a few of them

}  // namespace

// Waits for the calls of all ranks, then reads in place if every rank's buffers allow it.
progress::Program Group::run_direct_or_staged(progress::Operation& op, ConstBytes in, Bytes out) {
  post(op);
  co_await called_by_all(op);
  bool all_in = true, all_out = true;
  for (int p = 0; p < size_; ++p) {
    if (p != rank_) check_call(op, p);
    all_in &= block_.call(p, op.call.number).in_at >= 0;
    all_out &= block_.call(p, op.call.number).out_at >= 0;
  }
  if (all_in && all_out)
    op.rest = direct(op, in, out);
  else if (all_in && op.call.op == mesh::CollectiveOp::kAllGather)
    op.rest = run_direct_all_gather(op, in, out);
  else
    op.rest = staged(op, in, out);
}

// An all_reduce of private memory among ranks that share CPUs. Each rank copies its input to its
// ring, where the call runs as a direct call in place, and then copies its result from the ring.
// The ranks that have a CPU compute all sums, so ranks take turns less often than with slots. Sums
// overwrite all their inputs, so no cache line stays in the caches of several CPUs, where it would
// be slow to write.
progress::Program Group::run_through_ring(progress::Operation& op, ConstBytes in, Bytes out) {
  for (int step = 1; step < size_; ++step) co_await all_taken(op, next(step));
  for (int64_t at = 0; at < op.call.bytes(); at += kChunkBytes) {
    write_slot(op, writes_[size_t(rank_)], block_.ring(rank_) + at, in + at,
               std::min(kChunkBytes, op.call.bytes() - at));
    co_await all_taken(op, next(1));  // ready at once; other calls get their turn
  }
  op.rest = run_direct_or_staged(op, in, out);
}

Group::ConstBytes Group::in_of(const progress::Operation& op, int peer) const {
  return context_->job->at(block_.call(peer, op.call.number).in_at);
}

Group::Bytes Group::out_of(const progress::Operation& op, int peer) const {
  return context_->job->at(block_.call(peer, op.call.number).out_at);
}

// Whether no rank writes its result over its own input: all inputs can then be read until the end.
bool Group::are_apart(const progress::Operation& op) const {
  for (int p = 0; p < size_; ++p) {
    const segment::CallEntry& entry = block_.call(p, op.call.number);
    if (std::abs(entry.in_at - entry.out_at) < op.call.bytes()) return false;
  }
  return true;
}

// Whether the bytes read from `peer` were valid. If not, the engine's next check for failures of
// the group ends the call.
bool Group::was_whole(const progress::Operation& op, int peer) const {
  const uint64_t closed = block_.control(peer).closed.load();
  if (context_->job->failures() != 0 && failure())
    return false;  // which may be the reason why the peer has left
  if (closed == segment::RankControl::kLeft)
    throw comm::CommError(
        comm::CommError::Kind::kPeerLost, global(peer),
        fmt::format("rank {}: {}: rank {} has left the group without completing the call",
                    global(rank_), progress::describe(op.call, op.call.peer), global(peer)));
  return closed == segment::RankControl::kOpen;
}

// An all_gather to private outputs. It copies a chunk of each rank in turn, because a chunk that
// another rank has just read may still be in the cache. In a large call each chunk counts as a
// slot of its own, so that ranks which share CPUs stay together and read memory once.
progress::Program Group::run_direct_all_gather(progress::Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes();
  const bool is_large = touched_bytes(op.call) >= kLargeBytes;
  const ResultWrites::StorePolicy results = result_writes(op.call, direct_gathers_);
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
      co_await called_by(op, p);  // ready at once; other calls get their turn
      if (is_large) co_await slot_of(op, p);
      results.make(n, [&] {
        reduce::copy_bytes(out + bytes * p + at, in_of(op, p) + at, n, results.non_temporal);
      });
      if (is_large && at + n < bytes) take(p);
    }
    reduce::copy_bytes(out + bytes * rank_ + at, in + at, n, results.non_temporal);
  }
  for (int step = 1; step < size_; ++step) {
    const int p = next(step);
    while (!was_whole(op, p)) co_await never(op, p);
    take(p);
  }
  for (int step = 1; step < size_; ++step) co_await all_taken(op, next(step));
}

// Elements of a rank's part of a direct call: its share of the sums in a reduction, its input in an
// all_gather.
int64_t Group::part_of(const progress::Call& call, int owner) const {
  return call.op == mesh::CollectiveOp::kAllGather ? call.count
                                                   : mesh::part_size(call.count, size_, owner);
}

// The number of CPUs for which parts are cut, as the first rank sees it, because all must agree.
int Group::cpus_of_parts() const { return context_->job->board(global(0)).cpus.load(); }

// The cut of all parts into pieces. One piece for each part is the least work. But if ranks share
// CPUs, some CPUs would then do more than others: with three parts on two CPUs, one CPU would be
// idle for half of the time.
Group::Pieces Group::pieces_of(const progress::Call& call) const {
  const int cpus = cpus_of_parts();
  const int64_t element = bytes_of(call.dtype), bytes = part_of(call, 0) * element;
  const int64_t chunks = std::max<int64_t>(1, progress::div_up(bytes, kChunkBytes));
  const int64_t each = progress::div_up(chunks, size_ > cpus ? segment::kPieces : 1);
  const bool is_short = call.op == mesh::CollectiveOp::kAllGather && bytes <= kShortPartBytes;
  return {int(progress::div_up(chunks, each)), each * kChunkBytes / element,
          (is_short ? kShortChunkBytes : kChunkBytes) / element};
}

ResultWrites::StorePolicy Group::result_writes_of_parts(const progress::Operation& op) {
  if (op.call.op == mesh::CollectiveOp::kAllGather)
    return result_writes(op.call, gathers_of_parts_);
  const bool is_part = op.call.op == mesh::CollectiveOp::kReduceScatter;
  const int64_t begin =
      is_part ? mesh::part_begin(op.call.count, size_, rank_) * bytes_of(op.call.dtype) : 0;
  // A call in place has no choice of stores, so nothing is timed.
  if (out_of(op, rank_) == in_of(op, rank_) + begin) return {fills_cache(op.call)};
  return result_writes(op.call, is_part ? scatters_of_parts_ : sums_of_parts_);
}

// The piece that this rank makes first; the other pieces of all parts follow in a circle. If ranks
// share CPUs, each CPU begins at its own place. So it makes the same pieces as in the last call,
// which are still in its cache.
int Group::first_piece(const Pieces& pieces) const {
  const int cpus = cpus_of_parts();
  if (size_ <= cpus) return rank_ * pieces.count;
  return int(int64_t{size_} * pieces.count * (context_->cpus.place_here() % cpus) / cpus);
}

// The first rank that claims a piece makes it, so ranks do not wait for a rank that has called but
// has no CPU. A rank makes as many pieces as its own part has, and more if it waits for the call or
// half of its time-out is over. It claims the piece, reads all its inputs in rank order, and writes
// the result to each rank that needs it: to the part's owner or, in an all_reduce and an
// all_gather, to all ranks. The result may overwrite inputs, but no other rank touches this piece
// of them.
progress::Program Group::run_direct_parts(progress::Operation& op, Bytes out) {
  op.wire_bytes +=
      mesh::wire_bytes(op.call.op, size_, rank_, op.call.count, bytes_of(op.call.dtype));
  const Pieces pieces = pieces_of(op.call);
  const ResultWrites::StorePolicy results = result_writes_of_parts(op);
  // The claims change from call to call: in time this rank writes to all of the memory.
  for (int step = 1; step < size_ && pieces.count > 1; ++step)
    for (int64_t at = 0; at < output_bytes(op.call); at += segment::Prefaulter::kAtOnce)
      if (map_ahead(op, next(step), at, 1)) co_await called_by(op, next(1));  // as below
  const int all = size_ * pieces.count, first = first_piece(pieces);
  int at = 0, made = 0;  // place in the circle; pieces made
  const auto place = [&] {
    const int n = (first + at) % all;
    return std::pair(n / pieces.count, n % pieces.count);
  };
  // Goes to the next unclaimed piece, if there is one.
  const auto find_piece = [&] {
    for (; at < all; ++at)
      if (const auto [owner, piece] = place(); is_to_be_made(op, owner, piece)) return true;
    return false;
  };
  while (find_piece()) {
    for (int piece = 0; piece < pieces.count && made == pieces.count; ++piece)
      co_await all_done(op, piece, true);
    co_await called_by(op, next(1));  // ready at once; other calls get their turn
    const auto [owner, piece] = place();
    if (!claim_piece(op, owner, piece)) continue;
    const int64_t begin = pieces.elements * piece;
    const int64_t end = std::min(begin + pieces.elements, part_of(op.call, owner));
    const int64_t at_once = pieces.chunk * chunks_at_once();
    const Part part{owner, results.non_temporal};
    for (int64_t i = begin; i < end; i += at_once) {
      if (i > begin) co_await called_by(op, next(1));
      const int64_t until = std::min(i + at_once, end);
      results.make((until - i) * bytes_of(op.call.dtype),
                   [&] { make_chunks(op, part, i, until, pieces.chunk); });
    }
    block_.control(owner).pieces[piece].done.store(op.call.number);
    ++made;
    if (!find_piece() && all_are_done(op, pieces)) ring_of_parts(op);
  }
  for (int piece = 0; piece < pieces.count; ++piece) co_await all_done(op, piece, false);
  for (int step = 1; step < size_; ++step) {  // a rank that completed it may have left
    const int p = next(step);
    while (has_given_up(p) && !was_whole(op, p)) co_await never(op, p);
  }
  if (ConstBytes result = out_of(op, rank_); result != out) {  // see run_through_ring()
    const int64_t bytes = output_bytes(op.call);
    for (int64_t i = 0; i < bytes; i += kChunkBytes) {
      reduce::copy_bytes(out + i, result + i, std::min(kChunkBytes, bytes - i));
      co_await called_by(op, next(1));
    }
  }
}

bool Group::has_given_up(int peer) const { return block_.control(peer).gave_up.load() != 0; }

// The part of a rank that has given up is not made, because the call fails for all ranks.
bool Group::is_to_be_made(const progress::Operation& op, int owner, int piece) const {
  return segment::number_of_claim(block_.control(owner).pieces[piece].claimed.load()) <
             op.call.number &&
         !has_given_up(owner);
}

bool Group::claim_piece(const progress::Operation& op, int owner, int piece) {
  std::atomic<uint64_t>& claimed = block_.control(owner).pieces[piece].claimed;
  uint64_t last = claimed.load();
  return segment::number_of_claim(last) < op.call.number &&
         claimed.compare_exchange_strong(last, segment::claim_of(op.call.number, rank_));
}

int64_t Group::output_bytes(const progress::Call& call) const {
  switch (call.op) {
    case mesh::CollectiveOp::kAllGather: return call.bytes() * size_;
    case mesh::CollectiveOp::kReduceScatter: return call.bytes() / size_;
    default: return call.bytes();
  }
}

// Maps these bytes of the output of `peer`, and memory near them. False if all was mapped before.
bool Group::map_ahead(const progress::Operation& op, int peer, int64_t at, int64_t bytes) {
  if (peer == rank_) return false;
  const int64_t begin = block_.call(peer, op.call.number).out_at;
  return context_->prefaulter.map(*context_->job, {begin + at, begin + at + bytes},
                                  {begin, begin + output_bytes(op.call)});
}

// Chunks of a piece that are made before other calls get their turn.
int Group::chunks_at_once() const {
  constexpr int kOfEach = 2;
  const int pool = context_->pool.count();
  return pool == 0 ? 1 : kOfEach * (pool + 1);
}

// Makes elements [begin, end) of the part.
void Group::make_chunks(const progress::Operation& op, Part part, int64_t begin, int64_t end,
                        int64_t chunk) {
  map_chunks(op, part.owner, begin, end);
  const auto make = [&](int i) {
    const int64_t at = begin + i * chunk, count = std::min(chunk, end - at);
    op.call.op == mesh::CollectiveOp::kAllGather ? spread_chunk(op, part, at, count)
                                                 : reduce_chunk(op, part, at, count);
  };
  const int chunks = int(progress::div_up(end - begin, chunk));
  if (context_->pool.count() > 0 && chunks > 1) return context_->pool.run(chunks, make);
  for (int i = 0; i < chunks; ++i) make(i);
}

// Maps the memory where these elements will be written.
void Group::map_chunks(const progress::Operation& op, int owner, int64_t begin, int64_t end) {
  const progress::Call& call = op.call;
  int64_t place = begin;  // in the outputs, in elements
  if (call.op == mesh::CollectiveOp::kAllGather) place += owner * call.count;
  if (call.op == mesh::CollectiveOp::kAllReduce)
    place += mesh::part_begin(call.count, size_, owner);
  const bool to_all = call.op != mesh::CollectiveOp::kReduceScatter;
  const int64_t element = bytes_of(call.dtype);
  for (int p = 0; p < size_; ++p)
    if ((to_all || p == owner) && !has_given_up(p))
      map_ahead(op, p, place * element, (end - begin) * element);
}

// Copies a chunk from one rank to all ranks. The chunk, which is read repeatedly, stays in a CPU's
// own cache. If each rank made its own output, each rank would read the inputs of all ranks.
void Group::spread_chunk(const progress::Operation& op, Part part, int64_t at, int64_t count) {
  const int64_t element = bytes_of(op.call.dtype);
  ConstBytes from = in_of(op, part.owner) + at * element;
  for (int step = 0; step < size_; ++step) {
    const int p = (part.owner + step) % size_;
    if (has_given_up(p)) continue;  // see reduce_chunk()
    reduce::copy_bytes(out_of(op, p) + part.owner * op.call.bytes() + at * element, from,
                       count * element, part.non_temporal);
  }
}

void Group::reduce_chunk(const progress::Operation& op, Part part, int64_t at, int64_t count) {
  const int64_t element = bytes_of(op.call.dtype);
  const int owner = part.owner;
  const int64_t begin = (mesh::part_begin(op.call.count, size_, owner) + at) * element;
  ConstBytes from[mesh::kMaxRanks];
  Bytes to[mesh::kMaxRanks];
  int outputs = 0;
  const bool to_all = op.call.op == mesh::CollectiveOp::kAllReduce;
  const int64_t place = to_all ? begin : at * element;
  for (int p = 0; p < size_; ++p) {
    from[p] = in_of(op, p) + begin;
    // A rank that gives up after this look waits until the piece is done.
    if ((to_all || p == owner) && !has_given_up(p)) to[outputs++] = out_of(op, p) + place;
  }
  if (outputs == 0) return;
  // A result that overwrites its input is in the cache already.
  const bool non_temporal = part.non_temporal && to[0] != from[to_all ? 0 : owner];
  reduce::reduce_inputs({to, outputs, from, size_, size_, non_temporal}, count, op.call.dtype,
                        op.call.reduce_op);
}

bool Group::all_are_done(const progress::Operation& op, const Pieces& pieces) const {
  for (int p = 0; p < size_; ++p)
    for (int piece = 0; piece < pieces.count; ++piece)
      if (block_.control(p).pieces[piece].done.load() < op.call.number) return false;
  return true;
}

// Wakes peers after the last piece. In an all_gather also wakes peers that compute: they may have
// made their next call, which other ranks see only after this one has ended.
void Group::ring_of_parts(const progress::Operation& op) {
  if (op.is_for_thread() || op.call.op == mesh::CollectiveOp::kAllGather) return ring_peers();
  ring_waiting_peers();
}

// This rank gives up, and its caller may then free its buffers, so peers must not write to them any
// more. It waits a moment for peers that are making a piece, unless they have died or are stopped.
void Group::close_parts(const progress::Operation& op) {
  using std::chrono::steady_clock;
  auto claimed = [this](int owner, int piece) -> std::atomic<uint64_t>& {
    return block_.control(owner).pieces[piece].claimed;
  };
  // Whether a rank is still making this piece. A rank that has given up keeps its claims: the piece
  // may be half made, over its own inputs.
  auto is_held = [&](int owner, int piece) {
    const uint64_t claim = claimed(owner, piece).load();
    const int holder = segment::holder_of_claim(claim);
    return segment::number_of_claim(claim) == op.call.number &&
           block_.control(owner).pieces[piece].done.load() < op.call.number &&
           !has_given_up(holder) && context_->job->board(global(holder)).died.load() == 0;
  };
  block_.control(rank_).gave_up.store(1);  // ranks that claim a piece from now on see it
  const bool to_all = op.call.op != mesh::CollectiveOp::kReduceScatter;
  constexpr std::chrono::seconds kMoment{1};
  waiting::Observation observation;
  const auto may_go_on = [&](int owner, int piece) {
    observation.observe(steady_clock::now());
    const int holder = global(segment::holder_of_claim(claimed(owner, piece).load()));
    const auto state = context_->engine.state(holder);
    return observation.observed_for() < kMoment &&
           !waiting::is_stopped_by(state, false, observation.observed_for(), kMoment)
                .value_or(false);
  };
  for (int p = 0; p < size_; ++p)
    for (int piece = 0; piece < segment::kPieces; ++piece)
      while ((to_all || p == rank_) && is_held(p, piece) && may_go_on(p, piece)) sched_yield();
}

// Each rank sums the inputs of all ranks.
progress::Program Group::run_direct_one_shot(progress::Operation& op, ConstBytes in, Bytes out) {
  const int64_t element = bytes_of(op.call.dtype), chunk = kChunkBytes / element;
  std::vector<ConstBytes>& from = sources_;
  count_slot(op, op.call.bytes() * (size_ - 1));
  for (int64_t at = 0; at < op.call.count; at += chunk) {
    co_await called_by(op, next(1));  // ready at once; other calls get their turn
    for (int p = 0; p < size_; ++p)
      from[size_t(p)] = (p == rank_ ? in : in_of(op, p)) + at * element;
    reduce::reduce_inputs(out + at * element, from.data(), size_,
                          std::min(chunk, op.call.count - at), op.call.dtype, op.call.reduce_op,
                          size_);
  }
  for (int step = 1; step < size_; ++step) {
    const int p = next(step);
    while (!was_whole(op, p)) co_await never(op, p);
    take(p);
  }
  for (int step = 1; step < size_; ++step) co_await all_taken(op, next(step));
}

}  // namespace smp::groups
