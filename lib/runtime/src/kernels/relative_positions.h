#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "kernels/attention_shape.h"
#include "smp/plan/model/parameter_counts.h"

// Relative positions (Raffel et al. 2020, section 2.1): a learnt number is added to each score, by
// head and by the bucket that the distance of key and query falls in. Half of the buckets are of
// single distances, the others of ranges that grow by a constant factor up to kRelativeDistance,
// beyond which all share the last. Where attention looks both ways, each way has half of the
// buckets. A head's numbers by distance are a diagonal of its scores: entry i is of the key
// i - (sequence - 1) positions after the query.
namespace smp::kernels {

// The bucket of a key `distance` positions after the query (before it, where negative). As
// transformers' T5 computes it, in its fp32: the logarithm decides which bucket a distance on the
// border of two falls in.
inline int64_t relative_bucket(int64_t distance, int64_t buckets, bool causal) {
  int64_t first = 0;
  if (causal) {
    distance = std::max<int64_t>(0, -distance);
  } else {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  }
  const int64_t single = buckets / 2;
  if (distance < single) return first + distance;
  const float share = std::log(static_cast<float>(distance) / static_cast<float>(single)) /
                      static_cast<float>(std::log(static_cast<double>(model::kRelativeDistance) /
                                                  static_cast<double>(single)));
  const auto wide = single + static_cast<int64_t>(share * static_cast<float>(buckets - single));
  return first + std::min(wide, buckets - 1);
}

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

}  // namespace smp::kernels
