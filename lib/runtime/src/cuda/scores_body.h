#pragma once

#include <cmath>

#include "cuda/dropout_body.h"
#include "kernels/attention.h"

// The softmax of attention over scores [matrices, queries, cols]. There is one matrix for each
// sample and key/value head. A matrix belongs to head `member` of the heads that share the
// key/value head. Its rows are the queries from `first` on; its columns are all keys that any of
// these queries sees. One block per row.
namespace smp::cuda {

struct ScoreRows {
  int64_t matrices = 0;
  int64_t queries = 0;
  int64_t cols = 0;
  int64_t first = 0;
  int64_t member = 0;

  SMP_HOST_DEVICE int64_t rows() const { return matrices * queries; }
};

// Sample, head, query and keys of row `row` of the scores.
struct ScorePosition {
  int64_t sample, head, position;
  int64_t from, to;  // the keys that the query sees

  SMP_HOST_DEVICE bool sees(int64_t key) const { return key >= from && key < to; }
};

SMP_HOST_DEVICE ScorePosition place_of(const kernels::AttentionShape& shape,
                                       const ScoreRows& scores, int64_t row) {
  const int64_t matrix = row / scores.queries, position = scores.first + row % scores.queries;
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t sample = matrix / shape.kv_heads;
  int64_t from = shape.window > 0 && position >= shape.window ? position + 1 - shape.window : 0;
  if (shape.documents != nullptr) {
    const int64_t document = shape.documents[sample * shape.sequence + position];
    from = document > from ? document : from;
  }
  return {sample, matrix % shape.kv_heads * group + scores.member, position, from,
          shape.causal ? position + 1 : scores.cols};
}

SMP_HOST_DEVICE kernels::DropoutRow dropout_of(const kernels::AttentionShape& shape,
                                               const ScorePosition& place) {
  kernels::DropoutRow row =
      shape.dropout.row(place.sample * shape.dropout.sample_rows + place.position);
  row.head = static_cast<uint32_t>(shape.first_head + place.head);
  return row;
}

template <typename C>
SMP_HOST_DEVICE C kept_share(const kernels::AttentionShape& shape,
                             const kernels::DropoutRow& dropout, int64_t col) {
  return shape.dropout.threshold > 0 ? dropout_factor<C>(dropout, col) : C(1);
}

// The biases of a query's scores by key, in `diagonals` (relative_body.h). Null without relative
// positions.
template <typename C>
SMP_HOST_DEVICE const C* added_of(const kernels::AttentionShape& shape, const ScorePosition& place,
                                  const C* diagonals) {
  if (diagonals == nullptr) return nullptr;
  return diagonals + place.head * shape.distances() + shape.sequence - 1 - place.position;
}

template <typename C>
SMP_HOST_DEVICE C score_of(C product, C scale, const C* added, int64_t key) {
  return product * scale + (added != nullptr ? added[key] : C(0));
}

// Replaces scores by weights with dropout, and writes log_sums. `diagonals` and `sinks` [heads] may
// be null. A sink takes its share of each query's weights, and gives no value.
template <typename Block, typename C>
SMP_HOST_DEVICE void softmax_scores(Block& block, const kernels::AttentionShape& shape,
                                    const ScoreRows& rows, const C* diagonals, const C* sinks,
                                    C* scores, C* log_sums) {
  const C scale = static_cast<C>(shape.scale);
  for_each_row(block, rows.rows(), [&](int64_t row) {
    const ScorePosition place = place_of(shape, rows, row);
    const kernels::DropoutRow dropout = dropout_of(shape, place);
    const C* const added = added_of(shape, place, diagonals);
    C* const x = scores + row * rows.cols;
    C highest = sinks != nullptr ? sinks[place.head] : C(-INFINITY);
    for_each_column(block, place.to, [&](int64_t c) {
      if (!place.sees(c)) return;
      x[c] = score_of(x[c], scale, added, c);
      if (x[c] > highest) highest = x[c];
    });
    highest = block.maximum(highest);
    C sum = 0;
    for_each_column(block, place.to, [&](int64_t c) {
      x[c] = place.sees(c) ? std::exp(x[c] - highest) : C(0);
      sum += x[c];
    });
    sum = block.sum(sum);
    if (sinks != nullptr) sum += std::exp(sinks[place.head] - highest);
    for_each_column(block, rows.cols, [&](int64_t c) {
      x[c] = place.sees(c) ? x[c] / sum * kept_share<C>(shape, dropout, c) : C(0);
    });
    if (block.thread() == 0) {
      log_sums[(place.sample * shape.heads + place.head) * shape.sequence + place.position] =
          highest + std::log(sum);
    }
  });
}

// Replaces scores by the same weights again. Replaces `gradients`, which holds the weights'
// gradients, by the scores' gradients, without the scale. output and output_gradient: [tokens,
// heads * value_width()].
template <typename Block, typename T, typename C>
SMP_HOST_DEVICE void softmax_scores_backward(Block& block, const kernels::AttentionShape& shape,
                                             const ScoreRows& rows, const C* diagonals,
                                             const T* output, const T* output_gradient,
                                             const C* log_sums, C* scores, C* gradients) {
  const C scale = static_cast<C>(shape.scale);
  const int64_t d = shape.value_width();
  for_each_row(block, rows.rows(), [&](int64_t row) {
    const ScorePosition place = place_of(shape, rows, row);
    const kernels::DropoutRow dropout = dropout_of(shape, place);
    const int64_t token = place.sample * shape.sequence + place.position;
    const int64_t at = token * shape.output_cols() + place.head * d;
    C mean = 0;  // of the gradients, weighted by the weights
    for_each_column(block, d,
                    [&](int64_t c) { mean += C(output[at + c]) * C(output_gradient[at + c]); });
    mean = block.sum(mean);
    const C* const added = added_of(shape, place, diagonals);
    const C log_sum =
        log_sums[(place.sample * shape.heads + place.head) * shape.sequence + place.position];
    C* const x = scores + row * rows.cols;
    C* const dx = gradients + row * rows.cols;
    for_each_column(block, rows.cols, [&](int64_t c) {
      const bool sees = place.sees(c);
      const C weight = sees ? std::exp(score_of(x[c], scale, added, c) - log_sum) : C(0);
      const C kept = sees ? kept_share<C>(shape, dropout, c) : C(0);
      dx[c] = sees ? weight * (dx[c] * kept - mean) : C(0);
      x[c] = weight * kept;
    });
  });
}

}  // namespace smp::cuda
