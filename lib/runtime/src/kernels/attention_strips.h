#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/attention_heads.h"
#include "kernels/attention_loops.h"
#include "kernels/attention_sight.h"
#include "kernels/block_product.h"
#include "smp/plan/program/attention_scratch.h"

// One head of one sample and a block of keys: attention (attention.h) has all keys in one, ring
// attention (ring_attention.h) those of a rank. Forward works on a strip of a few queries at a
// time: scores, softmax and values while they are in the innermost cache. Backward does the same
// for a block of strips, then the keys' and values' gradients for the block. A strip sees the keys
// up to its last query; nothing is computed beyond.
namespace smp::kernels {

inline constexpr int64_t kStrip = kProductRows;
inline constexpr int64_t kQueryBlock = program::kAttentionQueryBlock;
inline constexpr int64_t kRowMultiple = program::kAttentionRowMultiple;
static_assert(kStrip == program::kAttentionStrip);
static_assert(kProductOverread == program::kAttentionOverread);
static_assert(kQueryBlock % kStrip == 0 && kRowMultiple % kProductOverread == 0);
static_assert(kProductOverread % kStrip == 0);  // strips of keys begin alike in every block

constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Elements of buffers.
inline int64_t row_elements(const AttentionShape& shape) {
  return round_up(shape.keys, kRowMultiple);
}
inline int64_t query_elements(const AttentionShape& shape) {
  return shape.sequence * shape.head_dim;
}
inline int64_t key_elements(const AttentionShape& shape) { return shape.keys * shape.head_dim; }
inline int64_t output_elements(const AttentionShape& shape) {
  return shape.sequence * shape.value_width();
}
inline int64_t value_elements(const AttentionShape& shape) {
  return shape.keys * shape.value_width();
}
inline int64_t either_elements(const AttentionShape& shape) {
  return shape.longer() * shape.head_dim;
}
inline int64_t turned_elements(const AttentionShape& shape) {
  return shape.head_dim * row_elements(shape);
}
inline int64_t turned_value_elements(const AttentionShape& shape) {
  return shape.value_width() * row_elements(shape);
}
inline int64_t table_elements(const AttentionShape& shape) {
  return shape.longer() * shape.rotary.dim;
}
inline int64_t stats_elements(const AttentionShape& shape) {
  return shape.has_head_norms ? 2 * shape.longer() : 0;
}
inline int64_t diagonal_elements(const AttentionShape& shape) {
  return shape.relative_buckets > 0 ? shape.heads * shape.distances() : 0;
}

// Hands out the parts of a call's scratch buffer, one after the other.
template <typename T>
class Parts {
 public:
  explicit Parts(T* buffer) : next_(buffer) {}
  T* take(int64_t elements) { return std::exchange(next_, next_ + elements); }

 private:
  T* next_;
};

// Of a head's weights of one sample: the row of the sample's first query.
inline DropoutRow dropout_of_head(const AttentionShape& shape, int64_t sample, int64_t head) {
  DropoutRow row = shape.dropout.row(sample * shape.dropout.sample_rows);
  row.head = static_cast<uint32_t>(shape.first_head + head);
  return row;
}

template <typename T>
struct HeadForward {
  const AttentionShape& shape;
  Sight sight;
  const T *q, *keys, *v;  // [s, d], transposed [d, row], [keys, dv]
  const T* sink;          // null: it has none
  DropoutRow dropout;
  const T* diagonal;  // null without relative positions
  T* scores;          // [kStrip, row]

  // The scores of m queries from `at` on become exponentials, less what dropout lets go.
  VisibleKeys exponentials(int64_t at, int64_t m, T* inverse_sums, T* log_sums) const {
    const int64_t d = shape.head_dim, row = row_elements(shape);
    const VisibleKeys seen = sight.of_strip(at, m);
    block_product(m, round_up(seen.last, kProductOverread) - seen.first, d,
                  static_cast<T>(shape.scale), {q + at * d, d, 1}, keys + seen.first, row, false,
                  scores + seen.first, row);
    if (diagonal != nullptr) {
      add_diagonal(m, seen.last, diagonal + shape.sequence - 1 - at, row, scores);
    }
    softmax(m, seen, row, sink, scores, inverse_sums, log_sums);
    if (dropout.threshold > 0) drop_strip(m, seen, row, dropout, scores);
    return seen;
  }

  // Those exponentials times the values -> [m, dv], its rows `stride` apart.
  void values(int64_t m, const VisibleKeys& seen, T* to, int64_t stride) const {
    const int64_t dv = shape.value_width();
    block_product(m, dv, seen.last - seen.first, T(1),
                  {scores + seen.first, row_elements(shape), 1}, v + seen.first * dv, dv, false, to,
                  stride);
  }
};

// The gradients of the head are written, or added where `adds_queries`; those of its key and value
// head are written up to the key `written`, from there on added.
template <typename T>
struct HeadBackward {
  const AttentionShape& shape;
  Sight sight;
  const T *q, *k, *keys, *values;  // [s, d], [keys, d], and transposed [d, row], [dv, row]
  const T* output_gradient;        // [s, dv]
  const T* output;
  int64_t output_stride;  // between rows
  const T* log_sums;
  DropoutRow dropout;
  T *scores, *gradients;  // [kQueryBlock, row]
  const T* diagonal;      // null without relative positions
  T* diagonal_gradient;
  bool adds_queries;
  T *q_out, *k_out, *v_out;
  int64_t q_stride, k_stride, v_stride;  // between their rows

  // The last block of queries that sees a key writes its gradients, the others add.
  void run(int64_t written) const {
    const int64_t s = shape.sequence, last = (s - 1) / kQueryBlock * kQueryBlock;
    for (int64_t first = last; first >= 0; first -= kQueryBlock) {
      const int64_t count = std::min(kQueryBlock, s - first);
      if (!sight.sees_any(first, first + count)) continue;
      queries(first, count);
      keys_and_values(first, count, written);
      written = std::min(written, sight.first(first));
    }
  }

 private:
  // Probabilities, their gradients, and the gradients of the queries from `first` on.
  void queries(int64_t first, int64_t count) const {
    const int64_t d = shape.head_dim, dv = shape.value_width(), row = row_elements(shape);
    const int64_t block_begin = sight.first(first);
    const T scale = static_cast<T>(shape.scale);
    for (int64_t i = 0; i < count; i += kStrip) {
      const int64_t m = std::min(kStrip, count - i), at = first + i;
      const VisibleKeys seen = sight.of_strip(at, m);
      const int64_t begin = seen.first, end = seen.last;
      const int64_t offset = shape.sequence - 1 - at;  // of the strip on the diagonal
      const int64_t cols = round_up(end, kProductOverread) - begin;
      T* p = scores + i * row;
      T* dp = gradients + i * row;
      block_product(m, cols, d, scale, {q + at * d, d, 1}, keys + begin, row, false, p + begin,
                    row);
      if (diagonal != nullptr) add_diagonal(m, end, diagonal + offset, row, p);
      block_product(m, cols, dv, T(1), {output_gradient + at * dv, dv, 1}, values + begin, row,
                    false, dp + begin, row);
      softmax_backward(m, seen, row, dv, output + at * output_stride, output_stride,
                       output_gradient + at * dv, log_sums + at, dropout, p, dp);
      // What keys_and_values() reads as well.
      for (int64_t r = 0; r < m && begin > block_begin; ++r) {
        std::fill_n(p + r * row + block_begin, begin - block_begin, T(0));
        std::fill_n(dp + r * row + block_begin, begin - block_begin, T(0));
      }
      if (diagonal != nullptr) {
        add_to_diagonal(m, end - begin, dp + begin, row, diagonal_gradient + offset + begin);
      }
      block_product(m, d, end - begin, scale, {dp + begin, row, 1}, k + begin * d, d, adds_queries,
                    q_out + at * q_stride, q_stride);
    }
  }

  // What those queries add to the gradients of the keys and values they saw. Those before `written`
  // have none yet.
  void keys_and_values(int64_t first, int64_t count, int64_t written) const {
    const int64_t d = shape.head_dim, dv = shape.value_width(), row = row_elements(shape);
    const int64_t end = sight.end(first + count - 1);
    const T scale = static_cast<T>(shape.scale);
    for (int64_t j = sight.first(first); j < end; j += kStrip) {
      const int64_t m = std::min(kStrip, end - j);
      const int64_t at = std::max(first, sight.first_query(j));
      const int64_t offset = (at - first) * row + j;
      // 0: zeros, if any
      const int64_t depth = sight.seeing_end(at, first + count, j + m - 1) - at;
      const bool add = j >= written;
      if (add && depth == 0) continue;
      block_product(m, dv, depth, T(1), {scores + offset, 1, row}, output_gradient + at * dv, dv,
                    add, v_out + j * v_stride, v_stride);
      block_product(m, d, depth, scale, {gradients + offset, 1, row}, q + at * d, d, add,
                    k_out + j * k_stride, k_stride);
    }
  }
};

}  // namespace smp::kernels
