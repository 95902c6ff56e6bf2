#include "kernels/attention.h"

#include <algorithm>

#include "kernels/attention_strips.h"
#include "kernels/relative_positions.h"

namespace smp::kernels {
namespace {

// Whether a head's gradients are gathered in buffers of their own: of 16-bit elements they would be
// rounded at each sum, and a norm's backward needs what they would overwrite.
bool gradients_beside(const AttentionShape& shape, bool narrow) {
  return narrow || shape.has_head_norms;
}

template <typename T>
void forward(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given,
             const AttentionRows<const T>& rows, const AttentionPart& part, T* output,
             Wide<T>* log_sums, Wide<T>* scratch) {
  using C = Wide<T>;
  const int64_t s = shape.sequence, d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t dv = shape.value_width();
  const int64_t row = row_elements(shape), stride = shape.output_cols();
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
    load_head(shape, maker.key(b, kv), maker.key_steps(b, kv, stats), q);
    transpose(shape.keys, d, q, row, keys);
    load_head(shape, maker.value(b, kv), maker.value_steps(kv), v);
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      load_head(shape, maker.query(b, head), maker.query_steps(b, head, stats), q);
      const HeadForward<C> work{
          .shape = shape,
          .sight = Sight(shape, b, {}),
          .q = q,
          .keys = keys,
          .v = v,
          .sink = given.sinks != nullptr ? given.sinks + head : nullptr,
          .dropout = dropout_of_head(shape, b, head),
          .diagonal = shape.relative_buckets > 0 ? diagonals + head * shape.distances() : nullptr,
          .scores = scores};
      for (int64_t i = 0; i < s; i += kStrip) {
        const int64_t m = std::min(kStrip, s - i);
        const VisibleKeys seen =
            work.exponentials(i, m, inverse_sums, log_sums + (b * shape.heads + head) * s + i);
        T* out = output + (b * s + i) * stride + head * dv;
        if constexpr (kIsNarrow<T>) {
          work.values(m, seen, strip, dv);
          scale_rows(m, dv, dv, inverse_sums, strip);
          store_rows(m, dv, strip, out, stride);
        } else {
          work.values(m, seen, out, stride);
          scale_rows(m, dv, stride, inverse_sums, out);
        }
      }
    }
  }
}

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
    T* key = maker.key(b, kv);
    T* value = maker.value(b, kv);
    const HeadSteps<C> key_steps = maker.key_steps(b, kv, k_stats);
    load_head<T>(shape, key, key_steps, k);
    transpose(shape.keys, d, k, row, keys);
    load_head<T>(shape, value, maker.value_steps(kv), q);
    transpose(shape.keys, dv, q, row, values);
    HeadBackward<C> work{.shape = shape,
                         .sight = Sight(shape, b, {}),
                         .q = q,
                         .k = k,
                         .keys = keys,
                         .values = values,
                         .output_gradient = gradient,
                         .output = output_head,
                         .output_stride = dv,
                         .log_sums = nullptr,
                         .dropout = {},
                         .scores = scores,
                         .gradients = score_gradients,
                         .diagonal = nullptr,
                         .diagonal_gradient = nullptr,
                         .adds_queries = false,
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
      work.run(head > kv * group ? 0 : shape.keys);
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
