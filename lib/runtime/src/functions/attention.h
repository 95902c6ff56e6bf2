#pragma once

#include <cstdint>

// Causal attention over packed rows [q heads | k heads | v heads], as the combined projection
// leaves them: its bias, or the rotary embedding, is applied while a head is copied to a small
// contiguous buffer, and the gradients overwrite the packed rows in place. A block of queries at a
// time meets all its keys, so that a row's softmax is complete at once; the blocks above the
// diagonal are skipped.
namespace smp {

struct AttentionShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t heads = 0;     // of this rank
  int64_t kv_heads = 0;  // of this rank; heads is a multiple
  int64_t head_dim = 0;
  double rope_theta = 0;  // 0 = no rotary embedding

  int64_t packed_cols() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t output_cols() const { return heads * head_dim; }
  int64_t log_sums() const { return batch * heads * sequence; }
  // Elements of the scratch buffer that a call needs.
  int64_t forward_scratch() const;
  int64_t backward_scratch() const;
};

#define SMP_ATTENTION_OF(T)                                                                       \
  /* packed [b * s, packed_cols], bias [packed_cols] or null; writes output [b * s, heads *       \
     head_dim] and the logarithm of each softmax's denominator, [b, heads, s]. */                 \
  void attention_forward(const AttentionShape& shape, const T* packed, const T* bias, T* output,  \
                         T* log_sums, T* scratch);                                                \
  /* packed becomes its own gradient. */                                                          \
  void attention_backward(const AttentionShape& shape, T* packed, const T* bias, const T* output, \
                          const T* output_gradient, const T* log_sums, T* scratch);

SMP_ATTENTION_OF(float)
SMP_ATTENTION_OF(double)
#undef SMP_ATTENTION_OF

}  // namespace smp
