#include <algorithm>

#include "copy.h"
#include "reduce.h"
#include "steps.h"

// The two ways of an all_reduce of private memory: short ones show all to all, long ones are a mesh
// reduce-scatter and a mesh all-gather. Words as in collectives.cpp.
namespace smp::shm {
namespace {

// Half a slot: beside it the rank's own part and what is written stay in a CPU's own cache.
constexpr int64_t kOneShotStep = 128 << 10;
static_assert(kOneShotStep <= kSlotBytes);
constexpr int64_t kSumBlock = 32 << 10;  // about what the nearest cache holds

}  // namespace

Program Group::run_one_shot(Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes(), element = bytes_of(op.call.dtype);
  const int64_t most = kOneShotStep, steps = std::max<int64_t>(1, div_up(bytes, most));
  const bool stream = fills_cache(op.call) && in != out;
  const int far = steps > 1 ? next(1) : -1;
  std::vector<ConstBytes>& from = sources_;
  begin(op);
  int64_t made = 0;
  for (int64_t taken = 0; taken < steps; ++taken) {
    while (made < steps && writes_next(made, taken)) {
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      const int64_t at = made++ * most, n = std::min(most, bytes - at);
      writes_[size_t(rank_)].copy(my_slot(n), in + at, n);
      publish(op, n * (size_ - 1));
      op.is_given = steps == 1;
    }
    const int64_t at = taken * most, n = std::min(most, bytes - at);
    from[size_t(rank_)] = in + at;
    for (int step = 1; step < size_; ++step) {
      const int p = next(step);
      co_await slot_of(op, p);
      if (taken == 0) check_slot(op, p);
      from[size_t(p)] = peer_slot(p, n);
    }
    Bytes const to = out + at;
    reduce_inputs({&to, 1, from.data(), size_, size_, stream, 0, far}, n / element, op.call.dtype,
                  op.call.reduce_op);
    take_all(steps == 1);
  }
}

// The sum of so many bytes of all sources goes to `out` and to the next slot: in blocks, which are
// copied to the slot while they are in the nearest cache. Where a peer's CPU shares no cache with
// this one, a vector that writes a slot waits until each line that the peer has read is taken away
// from there. Long copies by the C library do not, and all are timed (SlotWrites).
void Group::sum_to_slot(const Operation& op, Bytes out, int64_t bytes, bool stream) {
  const int64_t element = bytes_of(op.call.dtype);
  Bytes const slot = my_slot(bytes);
  alignas(kLineBytes) std::byte block[kSumBlock];  // of a sum that goes to `out` around the cache
  for (int64_t at = 0; at < bytes; at += kSumBlock) {
    const int64_t n = std::min(kSumBlock, bytes - at);
    Bytes const to[] = {stream ? block : out + at, out + at};
    reduce_inputs(
        {to, stream ? 2 : 1, sources_.data(), size_, size_, stream, 1, stream ? rank_ : -1},
        n / element, op.call.dtype, op.call.reduce_op);
    sum_writes_.copy(slot + at, to[0], n);
    for (ConstBytes& from : sources_) from += n;
  }
}

// A mesh reduce-scatter and a mesh all-gather, a chunk at a time. Each rank publishes, in this
// order, pieces 0, pieces 1, sum 0, pieces 2, sum 1, ... and takes its peers' slots in the same
// order: while a sum is on its way the next pieces are being summed.
Program Group::run_mesh_all_reduce(Operation& op, ConstBytes in, Bytes out) {
  static_assert(kRingSlots >= 4,
                "pieces k are not taken before sum k has a place behind pieces k+1");
  const int64_t element = bytes_of(op.call.dtype), count = op.call.count;
  const int64_t chunk = piece_bytes() / element;
  const int64_t steps = div_up(part_size(count, size_, 0), chunk);
  auto part_at = [&](int rank, int64_t step) {
    return (part_begin(count, size_, rank) + step * chunk) * element;
  };
  auto length = [&](int rank, int64_t step) {
    return std::clamp<int64_t>(part_size(count, size_, rank) - step * chunk, 0, chunk);
  };
  const bool stream = fills_cache(op.call, in == out);
  std::vector<ConstBytes>& from = sources_;
  begin(op);
  for (int64_t k = -1; k <= steps; ++k) {
    if (k + 1 < steps) {
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      publish_pieces(op, in, count, chunk, k + 1);
    }
    if (k < 0) continue;
    if (k < steps) {  // the sum of chunk k of this rank's part
      from[size_t(rank_)] = in + part_at(rank_, k);
      for (int step = 1; step < size_; ++step) {
        const int p = next(step);
        co_await slot_of(op, p);
        if (k == 0) check_slot(op, p);
        from[size_t(p)] = piece_from(p, std::min(chunk, part_size(count, size_, 0)) * element);
      }
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      const int64_t n = length(rank_, k);
      sum_to_slot(op, out + part_at(rank_, k), n * element, stream);
      take_all();
      publish(op, n * element * (size_ - 1));
    }
    if (k == 0) continue;
    for (int step = 1; step < size_; ++step) {  // the peers' sums of chunk k - 1
      const int p = next(step);
      co_await slot_of(op, p);
      const int64_t n = length(p, k - 1);
      copy_bytes(out + part_at(p, k - 1), peer_slot(p, n * element), n * element, stream);
      take(p);
    }
  }
}

}  // namespace smp::shm
