#include "kernels/attention.h"

#include <algorithm>
#include <utility>

#include "kernels/attention_heads.h"
#include "kernels/attention_loops.h"
#include "kernels/block_product.h"
#include "kernels/relative_positions.h"
#include "smp/plan/program/attention_scratch.h"

namespace smp::kernels {
namespace {

// Forward works on a strip of a few queries at a time: scores, softmax and values while they are in
// the innermost cache. Backward does the same for a block of strips, then the keys' and values'
// gradients for the block. A strip sees the keys up to its last query; nothing is computed beyond.
constexpr int64_t kStrip = kProductRows;
constexpr int64_t kQueryBlock = program::kAttentionQueryBlock;
constexpr int64_t kRowMultiple = program::kAttentionRowMultiple;
static_assert(kStrip == program::kAttentionStrip);
static_assert(kProductOverread == program::kAttentionOverread);
static_assert(kQueryBlock % kStrip == 0 && kRowMultiple % kProductOverread == 0);
static_assert(kProductOverread % kStrip == 0);  // strips of keys begin alike in every block

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
int64_t row_elements(const AttentionShape& shape) { return round_up(shape.keys, kRowMultiple); }
int64_t query_elements(const AttentionShape& shape) { return shape.sequence * shape.head_dim; }
int64_t key_elements(const AttentionShape& shape) { return shape.keys * shape.head_dim; }
int64_t output_elements(const AttentionShape& shape) {
  return shape.sequence * shape.value_width();
}
int64_t value_elements(const AttentionShape& shape) { return shape.keys * shape.value_width(); }
int64_t either_elements(const AttentionShape& shape) { return shape.longer() * shape.head_dim; }
int64_t turned_elements(const AttentionShape& shape) {
  return shape.head_dim * row_elements(shape);
}
int64_t turned_value_elements(const AttentionShape& shape) {
  return shape.value_width() * row_elements(shape);
}
int64_t table_elements(const AttentionShape& shape) { return shape.longer() * shape.rotary.dim; }
int64_t stats_elements(const AttentionShape& shape) {
  return shape.has_head_norms ? 2 * shape.longer() : 0;
}
int64_t diagonal_elements(const AttentionShape& shape) {
  return shape.relative_buckets > 0 ? shape.heads * shape.distances() : 0;
}
// The end of the keys that the query at `position` sees.
int64_t seen_end(const AttentionShape& shape, int64_t position) {
  return shape.causal ? position + 1 : shape.keys;
}
// Where its window begins, below 0 while that reaches before the first key.
int64_t seen_begin(const AttentionShape& shape, int64_t position) {
  return shape.window > 0 ? position + 1 - shape.window : -shape.keys;
}
// The first key that is worked on for the queries from `position` on. `documents`: of the sample.
int64_t first_key(const AttentionShape& shape, const int64_t* documents, int64_t position) {
  const int64_t document = documents != nullptr ? documents[position] : 0;
  return std::max(document, seen_begin(shape, position)) / kProductOverread * kProductOverread;
}
// What the queries of a strip see, of the keys from `first` on.
VisibleKeys visible_keys(const AttentionShape& shape, const int64_t* documents, int64_t position,
                         int64_t first) {
  return {.first = first,
          .begin = seen_begin(shape, position),
          .end = seen_end(shape, position),
          .more = shape.causal ? 1 : 0,
          .documents = documents != nullptr ? documents + position : nullptr};
}
// Whether a head's gradients are gathered in buffers of their own: of 16-bit elements they would be
// rounded at each sum, and a norm's backward needs what they would overwrite.
bool gradients_beside(const AttentionShape& shape, bool narrow) {
  return narrow || shape.has_head_norms;
}

// Of a head's weights of one sample: the row of its first query.
DropoutRow dropout_of_head(const AttentionShape& shape, int64_t sample, int64_t head) {
  DropoutRow row = shape.dropout.row(sample * shape.dropout.sample_rows);
  row.head = static_cast<uint32_t>(shape.first_head + head);
  return row;
}
DropoutRow from_query(DropoutRow row, int64_t query) {
  row.row += static_cast<uint32_t>(query);
  return row;
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

template <typename T>
void forward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given,
             const AttentionRows<const T>& rows, const AttentionPart& part, T* output,
             Wide<T>* log_sums, Wide<T>* scratch) {
  using C = Wide<T>;
  const int64_t s = shape.sequence, d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t dv = shape.value_width();
  const int64_t row = row_elements(shape), stride = shape.output_cols();
  const C scale = static_cast<C>(shape.scale);
  Parts<C> parts(scratch);
  C* q = parts.take(either_elements(shape));  // and, before that, the keys of its group
  C* v = parts.take(value_elements(shape));
  C* keys = parts.take(turned_elements(shape));
  C* scores = parts.take(kStrip * row);
  C* rotations = parts.take(table_elements(shape));
  C* stats = parts.take(stats_elements(shape));
  C* strip = parts.take(kIsNarrow<T> ? kStrip * dv : 0);  // of the output
  C* diagonals = parts.take(diagonal_elements(shape));
  if (shape.relative_buckets > 0) fill_diagonals(shape, given.relative, diagonals);
  const HeadMaker<const T> maker(shape, given, rows, rotations);
  C inverse_sums[kStrip];
  for (int64_t pair = part.begin; pair < part.end; ++pair) {
    const int64_t b = pair / shape.kv_heads, kv = pair % shape.kv_heads;
    const int64_t* const documents = documents_of(shape, b);
    load_head(shape, maker.key(b, kv), maker.key_steps(b, kv, stats), q);
    transpose(shape.keys, d, q, row, keys);
    load_head(shape, maker.value(b, kv), maker.value_steps(kv), v);
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      load_head(shape, maker.query(b, head), maker.query_steps(b, head, stats), q);
      const DropoutRow dropout = dropout_of_head(shape, b, head);
      const C* sink = given.sinks != nullptr ? given.sinks + head : nullptr;
      for (int64_t i = 0; i < s; i += kStrip) {
        const int64_t m = std::min(kStrip, s - i);
        const int64_t begin = first_key(shape, documents, i), end = seen_end(shape, i + m - 1);
        const VisibleKeys seen = visible_keys(shape, documents, i, begin);
        block_product(m, round_up(end, kProductOverread) - begin, d, scale, {q + i * d, d, 1},
                      keys + begin, row, false, scores + begin, row);
        if (shape.relative_buckets > 0) {
          add_diagonal(m, end, diagonals + head * shape.distances() + s - 1 - i, row, scores);
        }
        softmax(m, seen, row, sink, scores, inverse_sums,
                log_sums + (b * shape.heads + head) * s + i);
        if (dropout.threshold > 0) drop_strip(m, seen, row, from_query(dropout, i), scores);
        T* out = output + (b * s + i) * stride + head * dv;
        if constexpr (kIsNarrow<T>) {
          block_product(m, dv, end - begin, C(1), {scores + begin, row, 1}, v + begin * dv, dv,
                        false, strip, dv);
          scale_rows(m, dv, dv, inverse_sums, strip);
          store_rows(m, dv, strip, out, stride);
        } else {
          block_product(m, dv, end - begin, C(1), {scores + begin, row, 1}, v + begin * dv, dv,
                        false, out, stride);
          scale_rows(m, dv, stride, inverse_sums, out);
        }
      }
    }
  }
}

// One head of one sample; its gradients are written, those of its key and value head added unless
// it is the first of its group.
template <typename T>
struct HeadBackward {
  const AttentionShape& shape;
  const T *q, *k, *keys, *values;  // [s, d], [s, d], and transposed [d, row], [dv, row]
  const T* output_gradient;        // [s, dv]
  const T* output;
  int64_t output_stride;  // between rows
  const T* log_sums;
  const int64_t* documents;  // of the sample
  DropoutRow dropout;
  T *scores, *gradients;  // [kQueryBlock, row]
  const T* diagonal;      // null without relative positions
  T* diagonal_gradient;
  T *q_out, *k_out, *v_out;
  int64_t q_stride, k_stride, v_stride;  // between their rows

  // Probabilities, their gradients, and the gradients of the queries from `first` on.
  void queries(int64_t first, int64_t count) const {
    const int64_t d = shape.head_dim, dv = shape.value_width(), row = row_elements(shape);
    const int64_t block_begin = first_key(shape, documents, first);
    const T scale = static_cast<T>(shape.scale);
    for (int64_t i = 0; i < count; i += kStrip) {
      const int64_t m = std::min(kStrip, count - i), at = first + i;
      const int64_t begin = first_key(shape, documents, at), end = seen_end(shape, at + m - 1);
      const int64_t offset = shape.sequence - 1 - at;  // of the strip on the diagonal
      const int64_t cols = round_up(end, kProductOverread) - begin;
      T* p = scores + i * row;
      T* dp = gradients + i * row;
      block_product(m, cols, d, scale, {q + at * d, d, 1}, keys + begin, row, false, p + begin,
                    row);
      if (diagonal != nullptr) add_diagonal(m, end, diagonal + offset, row, p);
      block_product(m, cols, dv, T(1), {output_gradient + at * dv, dv, 1}, values + begin, row,
                    false, dp + begin, row);
      softmax_backward(m, visible_keys(shape, documents, at, begin), row, dv,
                       output + at * output_stride, output_stride, output_gradient + at * dv,
                       log_sums + at, from_query(dropout, at), p, dp);
      // What keys_and_values() reads as well; with dropout a few of them were written.
      for (int64_t r = 0; r < m && begin > block_begin; ++r) {
        std::fill_n(p + r * row + block_begin, begin - block_begin, T(0));
        std::fill_n(dp + r * row + block_begin, begin - block_begin, T(0));
      }
      if (diagonal != nullptr) {
        add_to_diagonal(m, end - begin, dp + begin, row, diagonal_gradient + offset + begin);
      }
      block_product(m, d, end - begin, scale, {dp + begin, row, 1}, k + begin * d, d, false,
                    q_out + at * q_stride, q_stride);
    }
  }

  // The end of those queries that see any key before `key_end`: the documents behind do not.
  int64_t seeing_end(int64_t first, int64_t end, int64_t key_end) const {
    if (documents == nullptr) return end;
    return std::lower_bound(documents + first, documents + end, key_end) - documents;
  }

  // What those queries add to the gradients of the keys and values they saw. Those before `written`
  // have none yet.
  void keys_and_values(int64_t first, int64_t count, int64_t written) const {
    const int64_t d = shape.head_dim, dv = shape.value_width(), row = row_elements(shape);
    const int64_t end = seen_end(shape, first + count - 1);
    const T scale = static_cast<T>(shape.scale);
    for (int64_t j = first_key(shape, documents, first); j < end; j += kStrip) {
      const int64_t m = std::min(kStrip, end - j);
      // queries before the key
      const int64_t skip = shape.causal ? std::max<int64_t>(0, j - first) : 0;
      const int64_t at = first + skip, offset = skip * row + j;
      const int64_t depth = seeing_end(at, first + count, j + m) - at;  // 0: zeros, if any
      const bool add = j >= written;
      if (add && depth == 0) continue;
      block_product(m, dv, depth, T(1), {scores + offset, 1, row}, output_gradient + at * dv, dv,
                    add, v_out + j * v_stride, v_stride);
      block_product(m, d, depth, scale, {gradients + offset, 1, row}, q + at * d, d, add,
                    k_out + j * k_stride, k_stride);
    }
  }
};

template <typename T>
void backward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given,
              const AttentionRows<T>& rows, const AttentionPart& part, const T* output,
              const T* output_gradient, const Wide<T>* log_sums, Wide<T>* scratch) {
  using C = Wide<T>;
  const int64_t s = shape.sequence, d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t dv = shape.value_width(), row = row_elements(shape);
  const bool beside = gradients_beside(shape, kIsNarrow<T>);
  Parts<C> parts(scratch);
  // And, before that, the values of its group.
  C* q = parts.take(std::max(either_elements(shape), value_elements(shape)));
  C* k = parts.take(key_elements(shape));
  C* gradient = parts.take(output_elements(shape));
  C* keys = parts.take(turned_elements(shape));
  C* values = parts.take(turned_value_elements(shape));
  C* scores = parts.take(kQueryBlock * row);
  C* score_gradients = parts.take(kQueryBlock * row);
  C* rotations = parts.take(table_elements(shape));
  C* q_stats = parts.take(stats_elements(shape));
  C* k_stats = parts.take(stats_elements(shape));
  C* q_gradient = parts.take(beside ? query_elements(shape) : 0);
  C* k_gradient = parts.take(beside ? key_elements(shape) : 0);
  C* v_gradient = parts.take(beside ? value_elements(shape) : 0);
  C* output_head = parts.take(kIsNarrow<T> ? output_elements(shape) : 0);
  C* diagonals = parts.take(diagonal_elements(shape));
  C* diagonal_gradients = parts.take(diagonal_elements(shape));
  if (shape.relative_buckets > 0) fill_diagonals(shape, given.relative, diagonals);
  std::fill_n(diagonal_gradients, diagonal_elements(shape), C(0));
  const HeadMaker<T> maker(shape, given, rows, rotations);
  for (int64_t pair = part.begin; pair < part.end; ++pair) {
    const int64_t b = pair / shape.kv_heads, kv = pair % shape.kv_heads;
    const int64_t* const documents = documents_of(shape, b);
    T* key = maker.key(b, kv);
    T* value = maker.value(b, kv);
    const HeadSteps<C> key_steps = maker.key_steps(b, kv, k_stats);
    load_head<T>(shape, key, key_steps, k);
    transpose(shape.keys, d, k, row, keys);
    load_head<T>(shape, value, maker.value_steps(kv), q);
    transpose(shape.keys, dv, q, row, values);
    HeadBackward<C> work{.shape = shape,
                         .q = q,
                         .k = k,
                         .keys = keys,
                         .values = values,
                         .output_gradient = gradient,
                         .output = output_head,
                         .output_stride = dv,
                         .log_sums = nullptr,
                         .documents = documents,
                         .dropout = {},
                         .scores = scores,
                         .gradients = score_gradients,
                         .diagonal = nullptr,
                         .diagonal_gradient = nullptr,
                         .q_out = q_gradient,
                         .k_out = k_gradient,
                         .v_out = v_gradient,
                         .q_stride = d,
                         .k_stride = d,
                         .v_stride = dv};
    if constexpr (!kIsNarrow<T>) {
      if (!beside) {
        work.k_out = key;
        work.v_out = value;
        work.q_stride = rows.query_stride;
        work.k_stride = work.v_stride = rows.key_stride;
      }
    }
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      const int64_t offset = b * s * shape.output_cols() + head * dv;
      T* query = maker.query(b, head);
      const HeadSteps<C> query_steps = maker.query_steps(b, head, q_stats);
      load_head<T>(shape, query, query_steps, q);
      load_rows<T>(dv, s, output_gradient + offset, shape.output_cols(), nullptr, gradient);
      work.dropout = dropout_of_head(shape, b, head);
      work.log_sums = log_sums + (b * shape.heads + head) * s;
      if (shape.relative_buckets > 0) {
        work.diagonal = diagonals + head * shape.distances();
        work.diagonal_gradient = diagonal_gradients + head * shape.distances();
      }
      if constexpr (kIsNarrow<T>) {
        load_rows<T>(dv, s, output + offset, shape.output_cols(), nullptr, output_head);
      } else {
        work.output = output + offset;
        work.output_stride = shape.output_cols();
        if (!beside) work.q_out = query;
      }
      if (given.sinks != nullptr) {
        given.sinks_gradient[head] += sink_gradient(s, dv, given.sinks[head], work.output,
                                                    work.output_stride, gradient, work.log_sums);
      }
      // The last block that sees a key writes its gradients, the others add.
      const int64_t last = (s - 1) / kQueryBlock * kQueryBlock;
      int64_t written = head > kv * group ? 0 : shape.keys;
      for (int64_t first = last; first >= 0; first -= kQueryBlock) {
        const int64_t count = std::min(kQueryBlock, s - first);
        work.queries(first, count);
        work.keys_and_values(first, count, written);
        written = std::min(written, first_key(shape, documents, first));
      }
      turn_back<T>(shape, query, query_steps, work.q_out, work.q_stride, q);
      if (beside) store_rows<T>(s, d, work.q_out, query, rows.query_stride);
    }
    turn_back<T>(shape, key, key_steps, work.k_out, work.k_stride, k);
    if (beside) {
      store_rows<T>(shape.keys, d, work.k_out, key, rows.key_stride);
      store_rows<T>(shape.keys, dv, work.v_out, value, rows.key_stride);
    }
  }
  if (shape.relative_buckets > 0) {
    add_diagonals(shape, diagonal_gradients, given.relative_gradient);
  }
}

}  // namespace

#define SMP_DEFINE(T)                                                                              \
  void attention_forward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given,   \
                         const AttentionRows<const T>& rows, const AttentionPart& part, T* output, \
                         Wide<T>* log_sums, Wide<T>* scratch) {                                    \
    forward(shape, given, rows, part, output, log_sums, scratch);                                  \
  }                                                                                                \
  void attention_backward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given,  \
                          const AttentionRows<T>& rows, const AttentionPart& part,                 \
                          const T* output, const T* output_gradient, const Wide<T>* log_sums,      \
                          Wide<T>* scratch) {                                                      \
    backward(shape, given, rows, part, output, output_gradient, log_sums, scratch);                \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)
SMP_DEFINE(c10::BFloat16)
SMP_DEFINE(c10::Half)

}  // namespace smp::kernels
