#pragma once

#include <cstdint>

#include "cuda/scores_body.h"
#include "kernels/relative_positions.h"

// Relative positions on a GPU (kernels/relative_positions.h). The table is expanded to one bias per
// head and distance once a call. The backward sums the scores' gradients by distance, then by
// bucket of the table.
namespace smp::cuda {

// The first distance of each bucket, computed on the CPU, because a GPU's logarithm may round
// differently at a bucket's border.
struct BucketBounds {
  bool causal = true;
  int32_t count = 0;  // number of buckets for keys after the query, and for keys before it
  int32_t from[model::kRelativeBuckets] = {};

  SMP_HOST_DEVICE int64_t bucket(int64_t distance) const {
    const bool is_after = !causal && distance > 0;
    const int64_t away = distance < 0 ? -distance : is_after ? distance : 0;
    int32_t bucket = count - 1;
    while (from[bucket] > away) --bucket;
    return bucket + (is_after ? count : 0);
  }
};

inline BucketBounds bounds_of(const kernels::AttentionShape& shape) {
  BucketBounds bounds;
  bounds.causal = shape.causal;
  bounds.count =
      static_cast<int32_t>(shape.causal ? shape.relative_buckets : shape.relative_buckets / 2);
  int32_t away = 0;
  for (int32_t i = 0; i < bounds.count; ++i) {
    while (kernels::relative_bucket(-away, shape.relative_buckets, shape.causal) < i) ++away;
    bounds.from[i] = away;
  }
  return bounds;
}

// table [buckets, heads] -> diagonals [heads, distances].
template <typename Block, typename T>
SMP_HOST_DEVICE void fill_diagonals(const Block& block, const kernels::AttentionShape& shape,
                                    const BucketBounds& bounds, const T* table,
                                    kernels::Wide<T>* diagonals) {
  const int64_t count = shape.distances();
  for_each(block, shape.heads * count, [&](int64_t i) {
    const int64_t distance = i % count - (shape.sequence - 1);
    diagonals[i] = kernels::Wide<T>(table[bounds.bucket(distance) * shape.heads + i / count]);
  });
}

// Adds the gradients of a block's scores to the diagonals of their distances.
template <typename Block, typename C>
SMP_HOST_DEVICE void add_to_diagonals(const Block& block, const kernels::AttentionShape& shape,
                                      const ScoreRows& rows, const C* gradients, C* diagonals) {
  const int64_t count = shape.distances(), group = shape.heads / shape.kv_heads;
  for_each(block, shape.kv_heads * count, [&](int64_t i) {
    const int64_t kv = i / count, distance = i % count - (shape.sequence - 1);
    C sum = 0;
    for (int64_t sample = 0; sample < shape.batch; ++sample) {
      const C* const x = gradients + (sample * shape.kv_heads + kv) * rows.queries * rows.cols;
      for (int64_t query = 0; query < rows.queries; ++query) {
        const int64_t key = rows.first + query + distance;
        if (key >= 0 && key < rows.cols) sum += x[query * rows.cols + key];
      }
    }
    diagonals[(kv * group + rows.member) * count + i % count] += sum;
  });
}

// Adds the diagonals' gradients to the table's gradient.
template <typename Block, typename C>
SMP_HOST_DEVICE void add_to_table(const Block& block, const kernels::AttentionShape& shape,
                                  const BucketBounds& bounds, const C* diagonals, C* table) {
  const int64_t count = shape.distances();
  for_each(block, shape.relative_buckets * shape.heads, [&](int64_t i) {
    const int64_t head = i % shape.heads;
    C sum = 0;
    for (int64_t at = 0; at < count; ++at) {
      if (bounds.bucket(at - (shape.sequence - 1)) != i / shape.heads) continue;
      sum += diagonals[head * count + at];
    }
    table[i] += sum;
  });
}

}  // namespace smp::cuda
