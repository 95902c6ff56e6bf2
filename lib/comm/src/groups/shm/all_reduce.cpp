#include <algorithm>

#include "groups/shm/steps.h"
#include "reduce/copy.h"
#include "reduce/reduce.h"

// The two algorithms of an all_reduce of private memory. One-shot: every rank sums all elements.
// Long calls: a reduce_scatter of the ranks' parts, then a gather of the sums. Words as in
// collectives.cpp.
namespace smp::groups {
namespace {

// Half a slot, so that the slot, the rank's input and the output stay in a CPU's own cache.
constexpr int64_t kOneShotStep = 128 << 10;
static_assert(kOneShotStep <= mesh::kSlotBytes);

}  // namespace

progress::Program Group::run_one_shot(progress::Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes(), element = bytes_of(op.call.dtype);
  const int64_t most = kOneShotStep, steps = std::max<int64_t>(1, progress::div_up(bytes, most));
  const bool non_temporal = fills_cache(op.call) && in != out;
  const int far = steps > 1 ? next(1) : -1;
  std::vector<ConstBytes>& from = sources_;
  begin(op);
  int64_t made = 0;
  for (int64_t taken = 0; taken < steps; ++taken) {
    while (made < steps && writes_next(made, taken)) {
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      const int64_t at = made++ * most, n = std::min(most, bytes - at);
      write_slot(op, writes_[size_t(rank_)], my_slot(n), in + at, n);
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
    reduce::reduce_inputs({&to, 1, from.data(), size_, size_, non_temporal, 0, far}, n / element,
                          op.call.dtype, op.call.reduce_op);
    take_all(steps == 1);
  }
}

// The second half of a long all_reduce; `out` already has the sum of this rank's part.
progress::Program Group::run_gather_of_parts(progress::Operation& op, Bytes out,
                                             bool non_temporal) {
  const int64_t element = bytes_of(op.call.dtype), count = op.call.count;
  const int64_t steps =
      progress::div_up(mesh::part_size(count, size_, 0) * element, mesh::kSlotBytes);
  const auto length = [&](int rank, int64_t step) {
    const int64_t part = mesh::part_size(count, size_, rank) * element;
    return std::clamp<int64_t>(part - step * mesh::kSlotBytes, 0, mesh::kSlotBytes);
  };
  const auto chunk = [&](int rank, int64_t step) {
    return out + mesh::part_begin(count, size_, rank) * element + step * mesh::kSlotBytes;
  };
  begin(op);
  int64_t made = 0;
  for (int64_t taken = 0; taken < steps; ++taken) {
    while (made < steps && writes_next(made, taken)) {
      for (int step = 1; step < size_; ++step) co_await slot_free(op, next(step));
      const int64_t n = length(rank_, made);
      write_slot(op, writes_[size_t(rank_)], my_slot(n), chunk(rank_, made), n);
      publish(op, n * (size_ - 1));
      ++made;
    }
    for (int step = 1; step < size_; ++step) {
      const int p = next(step);
      co_await slot_of(op, p);
      const int64_t n = length(p, taken);
      reduce::copy_bytes(chunk(p, taken), peer_slot(p, n), n, non_temporal);
      take(p);
    }
  }
}

}  // namespace smp::groups
