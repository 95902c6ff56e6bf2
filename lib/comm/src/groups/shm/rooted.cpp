#include <algorithm>

#include "groups/shm/steps.h"
#include "reduce/copy.h"
#include "reduce/reduce.h"

// reduce, gather, scatter and all_to_all in a group inside a host. Words as in collectives.cpp.
namespace smp::groups {

// The slots of `peer` in this call are for other ranks, so `peer` need not wait for this rank.
void Group::take_unread(int peer, int64_t slots) {
  consumed_[size_t(peer)] += uint64_t(slots);
  block_.taken(peer, rank_).value.store(consumed_[size_t(peer)]);
  context_->job->ring(global(peer), global(rank_));
}

// reduce and gather: the root reads the slots of all ranks.
progress::Program Group::run_to_root(progress::Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes(), steps = progress::div_up(bytes, mesh::kSlotBytes);
  const int root = op.call.peer;
  const bool gathers = op.call.op == mesh::CollectiveOp::kGather;
  post(op);
  if (rank_ != root) {
    for (int step = 1; step < size_; ++step)
      if (next(step) != root) take_unread(next(step), steps);
    for (int64_t at = 0; at < bytes; at += mesh::kSlotBytes) {
      const int64_t n = std::min(mesh::kSlotBytes, bytes - at);
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      write_slot(op, writes_[size_t(root)], my_slot(n), in + at, n);
      publish(op, n);
    }
  } else {
    if (gathers) reduce::copy_bytes(out + bytes * root, in, bytes);
    std::vector<ConstBytes> from(static_cast<size_t>(size_));
    for (int64_t at = 0; at < bytes; at += mesh::kSlotBytes) {
      const int64_t n = std::min(mesh::kSlotBytes, bytes - at);
      from[size_t(root)] = in + at;
      for (int step = 1; step < size_; ++step) {
        const int p = next(step);
        co_await slot_of(op, p);
        if (at == 0) check_call(op, p);
        from[size_t(p)] = peer_slot(p, n);
        if (gathers) reduce::copy_bytes(out + bytes * p + at, peer_slot(p, n), n);
      }
      if (!gathers)
        reduce::reduce_inputs(out + at, from.data(), size_, n / bytes_of(op.call.dtype),
                              op.call.dtype, op.call.reduce_op, size_);
      take_all();
    }
  }
  co_await called_by_all(op);
  for (int step = 1; step < size_; ++step) check_call(op, next(step));
}

// scatter and all_to_all: the slots of the root, or of all ranks, hold a piece for each reader.
progress::Program Group::run_exchange(progress::Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes(), chunk = piece_bytes(),
                steps = progress::div_up(bytes, chunk);
  const int root = op.call.op == mesh::CollectiveOp::kScatter ? op.call.peer : -1;
  const bool gives = root < 0 || rank_ == root;
  auto place = [&](int peer) { return out + (root < 0 ? bytes * peer : 0); };
  post(op);
  if (gives) reduce::copy_bytes(place(rank_), in + bytes * rank_, bytes);
  int64_t made = 0;
  for (int64_t taken = 0; taken < steps; ++taken) {
    while (gives && made < steps && writes_next(made, taken)) {
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      publish_pieces(op, in, op.call.count * size_, chunk / bytes_of(op.call.dtype), made++);
    }
    const int64_t at = taken * chunk, n = std::min(chunk, bytes - at);
    for (int step = 1; step < size_; ++step) {
      const int p = next(step);
      if (root >= 0 && p != root) continue;
      co_await slot_of(op, p);
      if (taken == 0) check_call(op, p);
      reduce::copy_bytes(place(p) + at, piece_from(p, std::min(chunk, bytes)), n);
      take(p);
    }
  }
  co_await called_by_all(op);
  for (int step = 1; step < size_; ++step) check_call(op, next(step));
}

}  // namespace smp::groups
