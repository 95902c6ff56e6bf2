#include "functions/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "functions/attention_loops.h"
#include "functions/block_product.h"
#include "functions/kernels.h"
#include "smp/plan/layers.h"

namespace smp {
namespace {

// Forward works on a strip of a few queries at a time: scores, softmax and values while they are in
// the innermost cache. Backward does the same for a block of strips, then the keys' and values'
// gradients for the block. A strip sees the keys up to its last query; nothing is computed beyond.
constexpr int64_t kStrip = kProductRows;
constexpr int64_t kQueryBlock = kAttentionQueryBlock;
constexpr int64_t kRowMultiple = 32;  // of the rows of scores and of transposed heads
constexpr int64_t kExactEvery = 32;   // positions between exact sines and cosines
static_assert(kQueryBlock % kStrip == 0 && kRowMultiple % kProductOverread == 0);

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
int64_t row_elements(const AttentionShape& shape) { return round_up(shape.sequence, kRowMultiple); }
int64_t head_elements(const AttentionShape& shape) { return shape.sequence * shape.head_dim; }
int64_t turned_elements(const AttentionShape& shape) {
  return shape.head_dim * row_elements(shape);
}
int64_t table_elements(const AttentionShape& shape) {
  return shape.rope_theta > 0 ? head_elements(shape) : 0;
}
int64_t stats_elements(const AttentionShape& shape) {
  return shape.has_head_norms ? 2 * shape.sequence : 0;
}
// Whether a head's gradients are gathered in buffers of their own: of 16-bit elements they would be
// rounded at each sum, and a norm's backward needs what they would overwrite.
bool gradients_beside(const AttentionShape& shape, bool narrow) {
  return narrow || shape.has_head_norms;
}

// Rotations [s, head_dim]: cosines of the head_dim / 2 frequencies, then their sines. Position by
// position each is turned by its frequency, and computed afresh often enough to stay exact.
template <typename T>
void fill_rotations(const AttentionShape& shape, T* table) {
  const int64_t half = shape.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(
        shape.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_dim));
    const double turn_cos = std::cos(frequency), turn_sin = std::sin(frequency);
    double c = 1, s = 0;
    for (int64_t position = 0; position < shape.sequence; ++position) {
      if (position % kExactEvery == 0) {
        c = std::cos(frequency * static_cast<double>(position));
        s = std::sin(frequency * static_cast<double>(position));
      }
      table[position * shape.head_dim + i] = static_cast<T>(c);
      table[position * shape.head_dim + half + i] = static_cast<T>(s);
      const double turned = c * turn_cos - s * turn_sin;
      s = s * turn_cos + c * turn_sin;
      c = turned;
    }
  }
}

NormShape norm_shape_of(const AttentionShape& shape) {
  return {.rows = shape.sequence, .cols = shape.head_dim, .centered = shape.centered_norms};
}

// Rows of a head, `stride` apart in the tensors, as a contiguous [s, head_dim] buffer.
template <typename T>
void load_rows(const AttentionShape& shape, const T* from, int64_t stride, const Wide<T>* bias,
               Wide<T>* to) {
  const int64_t s = shape.sequence, d = shape.head_dim;
  if constexpr (kIsNarrow<T>) {
    for (int64_t r = 0; r < s; ++r) widen(d, from + r * stride, to + r * d);
    if (bias != nullptr) copy_rows(s, d, to, d, bias, to);
  } else {
    copy_rows(s, d, from, stride, bias, to);
  }
}

template <typename T>
void store_rows(int64_t rows, int64_t cols, const Wide<T>* from, T* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r, from += cols, to += stride) {
    if constexpr (kIsNarrow<T>) {
      narrow(cols, from, to);
    } else {
      std::copy_n(from, cols, to);
    }
  }
}

// How a head is made of its packed rows: null norms and rotations where it has none.
template <typename C>
struct HeadSteps {
  const C* bias = nullptr;  // [head_dim]
  const HeadNorm<C>* norm = nullptr;
  const C* rotations = nullptr;
  C* stats = nullptr;  // of the norm
};

template <typename T>
void load_head(const AttentionShape& shape, const T* rows, const HeadSteps<Wide<T>>& steps,
               Wide<T>* to) {
  const int64_t s = shape.sequence, d = shape.head_dim, stride = shape.packed_cols();
  if constexpr (!kIsNarrow<T>) {
    if (steps.rotations != nullptr && steps.bias == nullptr && steps.norm == nullptr) {
      rotate(s, d, steps.rotations, T(1), rows, stride, to, d);
      return;
    }
  }
  load_rows(shape, rows, stride, steps.bias, to);
  if (steps.norm != nullptr) {
    norm_forward(norm_shape_of(shape), Wide<T>(shape.norm_epsilon), to, steps.norm->weight,
                 steps.norm->bias, to, steps.stats);
  }
  if (steps.rotations != nullptr) rotate(s, d, steps.rotations, Wide<T>(1), to, d, to, d);
}

// The way back of load_head(), for a gradient whose rows lie `stride` apart; `raw` is a buffer for
// the head before its norm.
template <typename T>
void turn_back(const AttentionShape& shape, const T* rows, const HeadSteps<Wide<T>>& steps,
               Wide<T>* gradient, int64_t stride, Wide<T>* raw) {
  const int64_t s = shape.sequence, d = shape.head_dim;
  if (steps.rotations != nullptr) {
    rotate(s, d, steps.rotations, Wide<T>(-1), gradient, stride, gradient, stride);
  }
  if (steps.norm != nullptr) {  // then stride is d
    load_rows(shape, rows, shape.packed_cols(), steps.bias, raw);
    norm_backward(norm_shape_of(shape), gradient, raw, steps.stats, steps.norm->weight,
                  static_cast<const Wide<T>*>(nullptr), gradient, steps.norm->weight_gradient,
                  steps.norm->bias_gradient);
  }
}

// Where the heads lie in packed rows, and how each is made.
template <typename T>
class HeadMaker {
 public:
  using C = Wide<T>;
  // Fills `rotations`, table_elements() of them.
  HeadMaker(const AttentionShape& shape, const AttentionParameters<C>& given, C* rotations)
      : shape_(shape), given_(given), rotations_(shape.rope_theta > 0 ? rotations : nullptr) {
    if (rotations_ != nullptr) fill_rotations(shape, rotations);
  }

  int64_t key(int64_t kv) const { return (shape_.heads + kv) * shape_.head_dim; }
  int64_t value(int64_t kv) const { return key(kv + shape_.kv_heads); }

  HeadSteps<C> query_steps(int64_t head, C* stats) const {
    return {bias_at(head * shape_.head_dim), norm(given_.q_norm), rotations_, stats};
  }
  HeadSteps<C> key_steps(int64_t kv, C* stats) const {
    return {bias_at(key(kv)), norm(given_.k_norm), rotations_, stats};
  }
  HeadSteps<C> value_steps(int64_t kv) const { return {bias_at(value(kv)), nullptr, nullptr, {}}; }

 private:
  const C* bias_at(int64_t col) const { return given_.bias ? given_.bias + col : nullptr; }
  const HeadNorm<C>* norm(const HeadNorm<C>& norm) const {
    return shape_.has_head_norms ? &norm : nullptr;
  }

  const AttentionShape& shape_;
  const AttentionParameters<C>& given_;
  const C* rotations_;
};

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
             const T* packed, T* output, Wide<T>* log_sums, Wide<T>* scratch) {
  using C = Wide<T>;
  const int64_t s = shape.sequence, d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t row = row_elements(shape), stride = shape.output_cols();
  const C scale = C(1 / std::sqrt(static_cast<double>(d)));
  Parts<C> parts(scratch);
  C* q = parts.take(head_elements(shape));  // and, before that, the keys of its group
  C* v = parts.take(head_elements(shape));
  C* keys = parts.take(turned_elements(shape));
  C* scores = parts.take(kStrip * row);
  C* rotations = parts.take(table_elements(shape));
  C* stats = parts.take(stats_elements(shape));
  C* strip = parts.take(kIsNarrow<T> ? kStrip * d : 0);  // of the output
  const HeadMaker<T> maker(shape, given, rotations);
  C inverse_sums[kStrip];
  for (int64_t b = 0; b < shape.batch; ++b) {
    const T* rows = packed + b * s * shape.packed_cols();
    for (int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      load_head(shape, rows + maker.key(kv), maker.key_steps(kv, stats), q);
      transpose(s, d, q, row, keys);
      load_head(shape, rows + maker.value(kv), maker.value_steps(kv), v);
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
        load_head(shape, rows + head * d, maker.query_steps(head, stats), q);
        for (int64_t i = 0; i < s; i += kStrip) {
          const int64_t m = std::min(kStrip, s - i), seen = i + m;
          block_product(m, round_up(seen, kProductOverread), d, scale, {q + i * d, d, 1}, keys, row,
                        false, scores, row);
          softmax(m, i, row, scores, inverse_sums, log_sums + (b * shape.heads + head) * s + i);
          T* out = output + (b * s + i) * stride + head * d;
          if constexpr (kIsNarrow<T>) {
            block_product(m, d, seen, C(1), {scores, row, 1}, v, d, false, strip, d);
            scale_rows(m, d, d, inverse_sums, strip);
            store_rows(m, d, strip, out, stride);
          } else {
            block_product(m, d, seen, C(1), {scores, row, 1}, v, d, false, out, stride);
            scale_rows(m, d, stride, inverse_sums, out);
          }
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
  const T *q, *k, *keys, *values;  // [s, d], [s, d], and transposed [d, row]
  const T* output_gradient;        // [s, d]
  const T* output;
  int64_t output_stride;  // between rows
  const T* log_sums;
  T *scores, *gradients;  // [kQueryBlock, row]
  T *q_out, *k_out, *v_out;
  int64_t out_stride;  // between their rows

  // Probabilities, their gradients, and the gradients of the queries from `first` on.
  void queries(int64_t first, int64_t count) const {
    const int64_t d = shape.head_dim, row = row_elements(shape);
    const T scale = T(1 / std::sqrt(static_cast<double>(d)));
    for (int64_t i = 0; i < count; i += kStrip) {
      const int64_t m = std::min(kStrip, count - i), at = first + i, seen = at + m;
      const int64_t cols = round_up(seen, kProductOverread);
      T* p = scores + i * row;
      T* dp = gradients + i * row;
      block_product(m, cols, d, scale, {q + at * d, d, 1}, keys, row, false, p, row);
      block_product(m, cols, d, T(1), {output_gradient + at * d, d, 1}, values, row, false, dp,
                    row);
      softmax_backward(m, at, row, d, output + at * output_stride, output_stride,
                       output_gradient + at * d, log_sums + at, p, dp);
      block_product(m, d, seen, scale, {dp, row, 1}, k, d, false, q_out + at * out_stride,
                    out_stride);
    }
  }

  // What those queries add to the gradients of the keys and values they saw.
  void keys_and_values(int64_t first, int64_t count, bool add) const {
    const int64_t d = shape.head_dim, row = row_elements(shape), stride = out_stride;
    const T scale = T(1 / std::sqrt(static_cast<double>(d)));
    for (int64_t j = 0; j < first + count; j += kStrip) {
      const int64_t m = std::min(kStrip, first + count - j);
      const int64_t skip = std::max<int64_t>(0, j - first);  // queries before the key
      const int64_t at = first + skip, depth = count - skip, offset = skip * row + j;
      block_product(m, d, depth, T(1), {scores + offset, 1, row}, output_gradient + at * d, d, add,
                    v_out + j * stride, stride);
      block_product(m, d, depth, scale, {gradients + offset, 1, row}, q + at * d, d, add,
                    k_out + j * stride, stride);
    }
  }
};

template <typename T>
void backward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given, T* packed,
              const T* output, const T* output_gradient, const Wide<T>* log_sums,
              Wide<T>* scratch) {
  using C = Wide<T>;
  const int64_t s = shape.sequence, d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t stride = shape.packed_cols(), row = row_elements(shape);
  const int64_t beside = gradients_beside(shape, kIsNarrow<T>) ? head_elements(shape) : 0;
  Parts<C> parts(scratch);
  C* q = parts.take(head_elements(shape));  // and, before that, the values of its group
  C* k = parts.take(head_elements(shape));
  C* gradient = parts.take(head_elements(shape));
  C* keys = parts.take(turned_elements(shape));
  C* values = parts.take(turned_elements(shape));
  C* scores = parts.take(kQueryBlock * row);
  C* score_gradients = parts.take(kQueryBlock * row);
  C* rotations = parts.take(table_elements(shape));
  C* q_stats = parts.take(stats_elements(shape));
  C* k_stats = parts.take(stats_elements(shape));
  C* q_gradient = parts.take(beside);
  C* k_gradient = parts.take(beside);
  C* v_gradient = parts.take(beside);
  C* output_head = parts.take(kIsNarrow<T> ? head_elements(shape) : 0);
  const HeadMaker<T> maker(shape, given, rotations);
  for (int64_t b = 0; b < shape.batch; ++b) {
    T* rows = packed + b * s * stride;
    for (int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      T* key = rows + maker.key(kv);
      T* value = rows + maker.value(kv);
      const HeadSteps<C> key_steps = maker.key_steps(kv, k_stats);
      load_head(shape, key, key_steps, k);
      transpose(s, d, k, row, keys);
      load_head(shape, value, maker.value_steps(kv), q);
      transpose(s, d, q, row, values);
      HeadBackward<C> work{.shape = shape,
                           .q = q,
                           .k = k,
                           .keys = keys,
                           .values = values,
                           .output_gradient = gradient,
                           .output = output_head,
                           .output_stride = d,
                           .log_sums = nullptr,
                           .scores = scores,
                           .gradients = score_gradients,
                           .q_out = q_gradient,
                           .k_out = k_gradient,
                           .v_out = v_gradient,
                           .out_stride = d};
      if constexpr (!kIsNarrow<T>) {
        if (beside == 0) {
          work.k_out = key;
          work.v_out = value;
          work.out_stride = stride;
        }
      }
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
        const int64_t offset = b * s * shape.output_cols() + head * d;
        T* query = rows + head * d;
        const HeadSteps<C> query_steps = maker.query_steps(head, q_stats);
        load_head(shape, query, query_steps, q);
        load_rows<T>(shape, output_gradient + offset, shape.output_cols(), nullptr, gradient);
        work.log_sums = log_sums + (b * shape.heads + head) * s;
        if constexpr (kIsNarrow<T>) {
          load_rows<T>(shape, output + offset, shape.output_cols(), nullptr, output_head);
        } else {
          work.output = output + offset;
          work.output_stride = shape.output_cols();
          if (beside == 0) work.q_out = query;
        }
        // The last block sees every key: it writes their gradients, the others add.
        const int64_t last = (s - 1) / kQueryBlock * kQueryBlock;
        for (int64_t first = last; first >= 0; first -= kQueryBlock) {
          const int64_t count = std::min(kQueryBlock, s - first);
          work.queries(first, count);
          work.keys_and_values(first, count, head > kv * group || first < last);
        }
        turn_back<T>(shape, query, query_steps, work.q_out, work.out_stride, q);
        if (beside > 0) store_rows<T>(s, d, work.q_out, query, stride);
      }
      turn_back<T>(shape, key, key_steps, work.k_out, work.out_stride, k);
      if (beside > 0) {
        store_rows<T>(s, d, work.k_out, key, stride);
        store_rows<T>(s, d, work.v_out, value, stride);
      }
    }
  }
}

}  // namespace

int64_t AttentionShape::forward_scratch(bool narrow) const {
  return 2 * head_elements(*this) + turned_elements(*this) + kStrip * row_elements(*this) +
         table_elements(*this) + stats_elements(*this) + (narrow ? kStrip * head_dim : 0) +
         kProductOverread;
}
int64_t AttentionShape::backward_scratch(bool narrow) const {
  const int64_t heads_beside = (gradients_beside(*this, narrow) ? 3 : 0) + (narrow ? 1 : 0);
  return (3 + heads_beside) * head_elements(*this) + 2 * turned_elements(*this) +
         2 * kQueryBlock * row_elements(*this) + table_elements(*this) + 2 * stats_elements(*this) +
         kProductOverread;
}

#define SMP_DEFINE(T)                                                                             \
  void attention_forward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given,  \
                         const T* packed, T* output, Wide<T>* log_sums, Wide<T>* scratch) {       \
    forward(shape, given, packed, output, log_sums, scratch);                                     \
  }                                                                                               \
  void attention_backward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given, \
                          T* packed, const T* output, const T* output_gradient,                   \
                          const Wide<T>* log_sums, Wide<T>* scratch) {                            \
    backward(shape, given, packed, output, output_gradient, log_sums, scratch);                   \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)
SMP_DEFINE(c10::BFloat16)
SMP_DEFINE(c10::Half)

}  // namespace smp
