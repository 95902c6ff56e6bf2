#pragma once

#include <cstdint>

#include "functions/attention.h"
#include "smp/plan/parameter_counts.h"

// Relative positions (Raffel et al. 2020, section 2.1): a learnt number is added to each score, by
// head and by the bucket that the distance of key and query falls in. Half of the buckets are of
// single distances, the others of ranges that grow by a constant factor up to kRelativeDistance,
// beyond which all share the last. Where attention looks both ways, each way has half of the
// buckets. A head's numbers by distance are a diagonal of its scores: entry i is of the key
// i - (sequence - 1) positions after the query.
namespace smp {

// The bucket of a key `distance` positions after the query (before it, where negative).
int64_t relative_bucket(int64_t distance, int64_t buckets, bool causal);

// table [buckets, heads] -> diagonals [heads, distances].
template <typename T>
void fill_diagonals(const AttentionShape& shape, const T* table, T* diagonals) {
  const int64_t count = shape.distances();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bucket =
        relative_bucket(i - (shape.sequence - 1), shape.relative_buckets, shape.causal);
    for (int64_t head = 0; head < shape.heads; ++head) {
      diagonals[head * count + i] = table[bucket * shape.heads + head];
    }
  }
}

// The way back: adds the diagonals' gradients to the table's.
template <typename T>
void add_diagonals(const AttentionShape& shape, const T* diagonals, T* table) {
  const int64_t count = shape.distances();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bucket =
        relative_bucket(i - (shape.sequence - 1), shape.relative_buckets, shape.causal);
    for (int64_t head = 0; head < shape.heads; ++head) {
      table[bucket * shape.heads + head] += diagonals[head * count + i];
    }
  }
}

}  // namespace smp
