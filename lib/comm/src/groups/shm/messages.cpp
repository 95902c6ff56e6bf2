#include <algorithm>

#include "groups/shm/steps.h"
#include "reduce/copy.h"

// send and recv. Each directed pair has its own place in the sender's mailbox, so that no pair
// waits for another. A message that fits there is sent before its receiver asks for it.
namespace smp::groups {

progress::Program Group::run_send(progress::Operation& op, ConstBytes in) {
  const int to = op.call.peer;
  segment::Mail& mail = block_.mail(rank_, to);
  Peer& peer = peers_[size_t(to)];
  // This entry may be overwritten: the receiver has read all messages except the last two, because
  // each message took at least one chunk.
  static_assert(segment::kCallsKept > segment::GroupBlock::kMailChunks + 1);
  segment::CallEntry& entry = mail.calls[op.call.number % segment::kCallsKept];
  progress::write(entry, op.call, op.print);
  entry.number.store(op.call.number);
  const int64_t bytes = op.call.bytes(), chunk = block_.mail_chunk_bytes();
  int64_t at = 0;
  do {
    const uint64_t made = peer.chunks_out + 1;
    const uint64_t needed =
        made > segment::GroupBlock::kMailChunks ? made - segment::GroupBlock::kMailChunks : 0;
    co_await op.reaches(block_.mail_taken(rank_, to).value, needed, to);
    const int64_t n = std::min(chunk, bytes - at);
    write_slot(op, peer.writes, block_.mail_chunk(rank_, to, peer.chunks_out, n), in + at, n);
    op.wire_bytes += n;
    mail.made.value.store(++peer.chunks_out);
    context_->job->ring(global(to), global(rank_));
    at += chunk;
  } while (at < bytes);
}

progress::Program Group::run_recv(progress::Operation& op, Bytes out) {
  const int from = op.call.peer;
  segment::Mail& mail = block_.mail(from, rank_);
  Peer& peer = peers_[size_t(from)];
  const segment::CallEntry& entry = mail.calls[op.call.number % segment::kCallsKept];
  co_await op.reaches(mail.made.value, peer.chunks_in + 1, from);
  if (entry.fingerprint != op.print) {
    const progress::Call theirs = progress::call_in(entry, op.call.number);
    throw progress::mismatch(std::max(global(from), global(rank_)), global(rank_),
                             progress::describe(op.call, global(from)), global(from),
                             progress::describe(theirs, global(rank_)));
  }
  const int64_t bytes = op.call.bytes(), chunk = block_.mail_chunk_bytes();
  const bool is_large = fills_cache(op.call);
  int64_t at = 0;
  do {
    co_await op.reaches(mail.made.value, peer.chunks_in + 1, from);
    const int64_t n = std::min(chunk, bytes - at);
    reduce::copy_bytes(out + at, block_.mail_chunk(from, rank_, peer.chunks_in, n), n, is_large);
    block_.mail_taken(from, rank_).value.store(++peer.chunks_in);
    context_->job->ring(global(from), global(rank_));
    at += chunk;
  } while (at < bytes);
}

}  // namespace smp::groups
