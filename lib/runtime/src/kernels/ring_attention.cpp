#include "kernels/ring_attention.h"

#include <algorithm>

#include "kernels/attention_strips.h"

namespace smp::kernels {
namespace {

// The heads of a block, as they are: keys and values were prepared by the block's owner.
template <typename T>
class BlockHeads {
 public:
  // `rows`: a block, or its gradients.
  BlockHeads(const AttentionShape& shape, T* rows) : shape_(shape), rows_(rows) {}
  int64_t stride() const { return shape_.kv_cols(); }
  T* key(int64_t sample, int64_t kv) const {
    return rows_ + sample * shape_.keys * stride() + kv * shape_.head_dim;
  }
  T* value(int64_t sample, int64_t kv) const {
    return rows_ + sample * shape_.keys * stride() + shape_.key_cols() + kv * shape_.value_width();
  }

 private:
  const AttentionShape& shape_;
  T* rows_;
};

template <typename T>
void load_block_head(int64_t count, int64_t d, const T* from, int64_t stride, Wide<T>* to) {
  load_rows<T>(d, count, from, stride, nullptr, to);
}

template <typename T>
void ring_keys(const AttentionShape& whole, const AttentionParameters<Wide<T>>& given,
               const T* packed, const AttentionPart& part, T* block, Wide<T>* scratch) {
  using C = Wide<T>;
  const AttentionShape shape = ring_block_shape(whole);
  const int64_t n = shape.keys, d = shape.head_dim, dv = shape.value_width();
  Parts<C> parts(scratch);
  C* head = parts.take(std::max(key_elements(shape), value_elements(shape)));
  C* rotations = parts.take(table_elements(shape));
  C* stats = parts.take(stats_elements(shape));
  const AttentionRows<const T> rows = packed_rows(shape, packed);
  HeadMaker<const T> maker(shape, given, rows, rotations);
  const BlockHeads<T> heads(shape, block);
  for (int64_t pair = part.begin; pair < part.end; ++pair) {
    const int64_t b = pair / shape.kv_heads, kv = pair % shape.kv_heads;
    maker.begin_sample(b);
    load_head(shape, maker.key(b, kv), maker.key_steps(b, kv, stats), head);
    store_rows(n, d, head, heads.key(b, kv), heads.stride());
    load_head(shape, maker.value(b, kv), maker.value_steps(kv), head);
    store_rows(n, dv, head, heads.value(b, kv), heads.stride());
  }
}

template <typename T>
void ring_forward(const AttentionShape& whole, const AttentionParameters<Wide<T>>& given,
                  const T* packed, const RingBlock<T>& block, const AttentionPart& part,
                  const RingResults<Wide<T>>& results, Wide<T>* scratch) {
  using C = Wide<T>;
  const AttentionShape shape = ring_block_shape(whole);
  const int64_t n = shape.sequence, d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t dv = shape.value_width(), row = row_elements(shape), stride = shape.output_cols();
  Parts<C> parts(scratch);
  C* q = parts.take(query_elements(shape));  // and, before that, the keys of its group
  C* v = parts.take(value_elements(shape));
  C* turned = parts.take(turned_elements(shape));
  C* scores = parts.take(kStrip * row);
  C* rotations = parts.take(table_elements(shape));
  C* stats = parts.take(stats_elements(shape));
  C* strip = parts.take(kStrip * dv);  // of the output
  const AttentionRows<const T> rows = packed_rows(shape, packed);
  HeadMaker<const T> maker(shape, given, rows, rotations);
  const BlockHeads<const T> heads(shape, block.rows);
  C inverse_sums[kStrip], further_log_sums[kStrip];
  for (int64_t pair = part.begin; pair < part.end; ++pair) {
    const int64_t b = pair / shape.kv_heads, kv = pair % shape.kv_heads;
    const Sight sight(shape, b, block.slices);
    if (!sight.sees_any(0, n)) continue;
    maker.begin_sample(b);
    load_block_head(n, d, heads.key(b, kv), heads.stride(), q);
    transpose(n, d, q, row, turned);
    load_block_head(n, dv, heads.value(b, kv), heads.stride(), v);
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      load_head(shape, maker.query(b, head), maker.query_steps(b, head, stats), q);
      const bool has_sink = block.is_own && given.sinks != nullptr;
      const HeadForward<C> work{.shape = shape,
                                .sight = sight,
                                .q = q,
                                .keys = turned,
                                .v = v,
                                .sink = has_sink ? given.sinks + head : nullptr,
                                .dropout = dropout_of_head(shape, b, head),
                                .diagonal = nullptr,
                                .scores = scores};
      for (int64_t i = 0; i < n; i += kStrip) {
        const int64_t m = std::min(kStrip, n - i);
        if (!sight.sees_any(i, i + m)) continue;
        C* output = results.output + (b * n + i) * stride + head * dv;
        C* log_sums = results.log_sums + (b * shape.heads + head) * n + i;
        if (block.is_own) {
          const VisibleKeys seen = work.exponentials(i, m, inverse_sums, log_sums);
          work.values(m, seen, output, stride);
          scale_rows(m, dv, stride, inverse_sums, output);
        } else {
          const VisibleKeys seen = work.exponentials(i, m, inverse_sums, further_log_sums);
          work.values(m, seen, strip, dv);
          merge_strip(m, seen, dv, strip, inverse_sums, further_log_sums, stride, output, log_sums);
        }
      }
    }
  }
}

template <typename T>
void ring_backward(const AttentionShape& whole, const AttentionParameters<Wide<T>>& given,
                   const T* packed, const RingBlock<T>& block, const AttentionPart& part,
                   const T* output, const T* output_gradient, const Wide<T>* log_sums,
                   const RingGradients<Wide<T>>& gradients, Wide<T>* scratch) {
  using C = Wide<T>;
  const AttentionShape shape = ring_block_shape(whole);
  const int64_t n = shape.sequence, d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t dv = shape.value_width(), row = row_elements(shape);
  Parts<C> parts(scratch);
  // And, before that, the values of its group.
  C* q = parts.take(std::max(query_elements(shape), value_elements(shape)));
  C* k = parts.take(key_elements(shape));
  C* gradient = parts.take(output_elements(shape));
  C* turned_keys = parts.take(turned_elements(shape));
  C* turned_values = parts.take(turned_value_elements(shape));
  C* scores = parts.take(kQueryBlock * row);
  C* score_gradients = parts.take(kQueryBlock * row);
  C* rotations = parts.take(table_elements(shape));
  C* stats = parts.take(stats_elements(shape));
  C* output_head = parts.take(kIsNarrow<T> ? output_elements(shape) : 0);
  const AttentionRows<const T> rows = packed_rows(shape, packed);
  HeadMaker<const T> maker(shape, given, rows, rotations);
  const BlockHeads<const T> heads(shape, block.rows);
  const BlockHeads<C> head_gradients(shape, gradients.block);
  for (int64_t pair = part.begin; pair < part.end; ++pair) {
    const int64_t b = pair / shape.kv_heads, kv = pair % shape.kv_heads;
    const Sight sight(shape, b, block.slices);
    if (!sight.sees_any(0, n)) continue;
    maker.begin_sample(b);
    load_block_head(n, d, heads.key(b, kv), heads.stride(), k);
    transpose(n, d, k, row, turned_keys);
    load_block_head(n, dv, heads.value(b, kv), heads.stride(), q);
    transpose(n, dv, q, row, turned_values);
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      const int64_t offset = b * n * shape.output_cols() + head * dv;
      load_head(shape, maker.query(b, head), maker.query_steps(b, head, stats), q);
      load_block_head(n, dv, output_gradient + offset, shape.output_cols(), gradient);
      HeadBackward<C> work{.shape = shape,
                           .sight = sight,
                           .q = q,
                           .k = k,
                           .keys = turned_keys,
                           .values = turned_values,
                           .output_gradient = gradient,
                           .output = output_head,
                           .output_stride = dv,
                           .log_sums = log_sums + (b * shape.heads + head) * n,
                           .dropout = dropout_of_head(shape, b, head),
                           .scores = scores,
                           .gradients = score_gradients,
                           .diagonal = nullptr,
                           .diagonal_gradient = nullptr,
                           .adds_queries = true,
                           .q_out = gradients.queries + b * n * shape.query_cols() + head * d,
                           .k_out = head_gradients.key(b, kv),
                           .v_out = head_gradients.value(b, kv),
                           .q_stride = shape.query_cols(),
                           .k_stride = head_gradients.stride(),
                           .v_stride = head_gradients.stride()};
      if constexpr (kIsNarrow<T>) {
        load_block_head(n, dv, output + offset, shape.output_cols(), output_head);
      } else {
        work.output = output + offset;
        work.output_stride = shape.output_cols();
      }
      if (block.is_own && given.sinks != nullptr) {
        given.sinks_gradient[head] += sink_gradient(n, dv, given.sinks[head], work.output,
                                                    work.output_stride, gradient, work.log_sums);
      }
      work.run(0);
    }
  }
}

// A head's gradient [n, d], whose rows lie `stride` apart, back through rotation and norm to the
// head's rows in the packed ones.
template <typename T>
void turn_head_back(const AttentionShape& shape, const Wide<T>* gradient, int64_t stride,
                    const HeadSteps<Wide<T>>& steps, T* rows, Wide<T>* turned, Wide<T>* raw) {
  load_block_head(steps.count, steps.dim, gradient, stride, turned);
  if (steps.norm != nullptr) {  // its statistics
    HeadSteps<Wide<T>> normed = steps;
    normed.rotations = nullptr;
    load_head<T>(shape, rows, normed, raw);
  }
  turn_back<T>(shape, rows, steps, turned, steps.dim, raw);
  store_rows<T>(steps.count, steps.dim, turned, rows, steps.stride);
}

template <typename T>
void ring_turn_back(const AttentionShape& whole, const AttentionParameters<Wide<T>>& given,
                    T* packed, const RingGradients<const Wide<T>>& gradients,
                    const AttentionPart& part, Wide<T>* scratch) {
  using C = Wide<T>;
  const AttentionShape shape = ring_block_shape(whole);
  const int64_t n = shape.sequence, d = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int64_t cols = shape.query_cols();
  Parts<C> parts(scratch);
  C* turned = parts.take(query_elements(shape));
  C* raw = parts.take(query_elements(shape));
  C* rotations = parts.take(table_elements(shape));
  C* stats = parts.take(stats_elements(shape));
  const AttentionRows<T> rows = packed_rows(shape, packed);
  HeadMaker<T> maker(shape, given, rows, rotations);
  const BlockHeads<const C> heads(shape, gradients.block);
  for (int64_t pair = part.begin; pair < part.end; ++pair) {
    const int64_t b = pair / shape.kv_heads, kv = pair % shape.kv_heads;
    maker.begin_sample(b);
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      turn_head_back(shape, gradients.queries + b * n * cols + head * d, cols,
                     maker.query_steps(b, head, stats), maker.query(b, head), turned, raw);
    }
    turn_head_back(shape, heads.key(b, kv), heads.stride(), maker.key_steps(b, kv, stats),
                   maker.key(b, kv), turned, raw);
    T* value = maker.value(b, kv);
    const C* from = heads.value(b, kv);
    for (int64_t r = 0; r < n; ++r) {
      store_rows<T>(1, shape.value_width(), from + r * heads.stride(), value + r * rows.key_stride,
                    rows.key_stride);
    }
  }
}

}  // namespace

#define SMP_DEFINE(T)                                                                              \
  void ring_attention_keys(const AttentionShape& shape, const AttentionParameters<Wide<T>>& given, \
                           const T* packed, const AttentionPart& part, T* block,                   \
                           Wide<T>* scratch) {                                                     \
    ring_keys(shape, given, packed, part, block, scratch);                                         \
  }                                                                                                \
  void ring_attention_forward(const AttentionShape& shape,                                         \
                              const AttentionParameters<Wide<T>>& given, const T* packed,          \
                              const RingBlock<T>& block, const AttentionPart& part,                \
                              const RingResults<Wide<T>>& results, Wide<T>* scratch) {             \
    ring_forward(shape, given, packed, block, part, results, scratch);                             \
  }                                                                                                \
  void ring_attention_backward(const AttentionShape& shape,                                        \
                               const AttentionParameters<Wide<T>>& given, const T* packed,         \
                               const RingBlock<T>& block, const AttentionPart& part,               \
                               const T* output, const T* output_gradient, const Wide<T>* log_sums, \
                               const RingGradients<Wide<T>>& gradients, Wide<T>* scratch) {        \
    ring_backward(shape, given, packed, block, part, output, output_gradient, log_sums, gradients, \
                  scratch);                                                                        \
  }                                                                                                \
  void ring_attention_turn_back(const AttentionShape& shape,                                       \
                                const AttentionParameters<Wide<T>>& given, T* packed,              \
                                const RingGradients<const Wide<T>>& gradients,                     \
                                const AttentionPart& part, Wide<T>* scratch) {                     \
    ring_turn_back(shape, given, packed, gradients, part, scratch);                                \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)
SMP_DEFINE(c10::BFloat16)
SMP_DEFINE(c10::Half)

}  // namespace smp::kernels
